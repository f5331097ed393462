"""Whether both services have the same cloud, asked over HTTP."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from bench.clouds import uuid_of
from bench.loading import PROJECT
from bench.services import VERSION, Service


class Difference(Exception):
    """The services do not answer the same; the message says to what."""


def check_clouds(ours: Service, reference: Service) -> None:
    """Raise `Difference` unless both have the same number of providers, and the same usage."""
    _check(ours, reference, "/resource_providers", _count_of_providers)
    # From 1.38 on the reference answers 500 to this, on PostgreSQL.
    _check(ours, reference, f"/usages?project_id={PROJECT}", lambda body: body["usages"], version="1.37")


def check_candidates(ours: Service, reference: Service, query: str, hosts: Iterable[str]) -> None:
    """Raise `Difference` unless both find the same candidates in each of these hosts."""
    for host in hosts:
        _check(ours, reference, f"/allocation_candidates?{query}&in_tree={uuid_of(host)}", _candidates)


def _check(
    ours: Service, reference: Service, path: str, told: Callable[[Any], Any], version: str = VERSION
) -> None:
    answers = [told(json.loads(service.ask("GET", path, version=version))) for service in (ours, reference)]
    if answers[0] != answers[1]:
        raise Difference(
            f"The services differ on {path}: {str(answers[0])[:500]} against {str(answers[1])[:500]}"
        )


def _count_of_providers(body: Any) -> int:
    return len(body["resource_providers"])


def _candidates(body: Any) -> tuple[set[str], Any]:
    """Return an answer in a form that does not depend on any order."""
    for request in body["allocation_requests"]:
        for uuids in request["mappings"].values():
            uuids.sort()
    for summary in body["provider_summaries"].values():
        summary["traits"].sort()
    requests = {json.dumps(request, sort_keys=True) for request in body["allocation_requests"]}
    return requests, body["provider_summaries"]
