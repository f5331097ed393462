"""Requests that meet, and how they are written."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

ROUNDS = 5

OWNER = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}


def race(*requests):
    """Send all requests at the same moment and return their responses in order."""
    start = Barrier(len(requests))

    def send(request):
        start.wait()
        return request()

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(send, requests))


def statuses(responses):
    return sorted(response.status_code for response in responses)


def code(response):
    return response.json["errors"][0]["code"]


def held(provider, amount, resource_class="VCPU"):
    return {provider: {"resources": {resource_class: amount}}}


def consumer(allocations, generation=None):
    return {"allocations": allocations, "consumer_generation": generation, **OWNER}


def inventories(generation, **totals):
    return {
        "resource_provider_generation": generation,
        "inventories": {name: {"total": total} for name, total in totals.items()},
    }
