"""Concurrent requests, and their bodies."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event

ROUNDS = 5

OWNER = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}


def race(*requests):
    """Send all requests at the same time and return their responses in the order of the requests."""
    start = Barrier(len(requests))

    def send(request):
        start.wait()
        return request()

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(send, requests))


@contextmanager
def repeatedly(*actions: Callable[[], None]) -> Iterator[None]:
    """Run each action at least once, and repeat it in a thread of its own until the block ends."""
    finished = Event()

    def repeat(action: Callable[[], None]) -> None:
        action()
        while not finished.is_set():
            action()

    with ThreadPoolExecutor(len(actions)) as threads:
        running = [threads.submit(repeat, action) for action in actions]
        try:
            yield
        finally:
            finished.set()
        for one in running:
            one.result()


def statuses(responses):
    """Return the sorted status codes."""
    return sorted(response.status_code for response in responses)


def code(response):
    """Return the error code of a response."""
    return response.json["errors"][0]["code"]


def allocation(provider, amount, resource_class="VCPU"):
    """Return the `allocations` of a request body: an amount of one provider."""
    return {provider: {"resources": {resource_class: amount}}}


def consumer(allocations, generation=None):
    """Return the request body of a consumer's claim."""
    return {"allocations": allocations, "consumer_generation": generation, **OWNER}


def inventories(generation, **totals):
    """Return the request body of a provider's inventories."""
    return {
        "resource_provider_generation": generation,
        "inventories": {name: {"total": total} for name, total in totals.items()},
    }
