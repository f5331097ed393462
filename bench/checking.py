"""Check over HTTP that both services report the same cloud."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from bench.clouds import uuid_of
from bench.loading import PROJECT
from bench.services import VERSION, Service


class ServicesDiffer(Exception):
    """The services send different responses; the message names the request."""


def check_clouds(ours: Service, reference: Service) -> None:
    """Raise `ServicesDiffer` unless the number of providers and the usages are the same."""
    _check(ours, reference, "/resource_providers", _provider_count)
    # From microversion 1.38 on, the reference on PostgreSQL returns 500 for this request.
    _check(ours, reference, f"/usages?project_id={PROJECT}", lambda body: body["usages"], version="1.37")


def check_candidates(ours: Service, reference: Service, query: str, hosts: Iterable[str]) -> None:
    """Raise `ServicesDiffer` unless the candidates in the tree of each of these hosts are the same."""
    for host in hosts:
        _check(ours, reference, f"/allocation_candidates?{query}&in_tree={uuid_of(host)}", _candidates)


def _check(
    ours: Service, reference: Service, path: str, select: Callable[[Any], Any], version: str = VERSION
) -> None:
    """Raise `ServicesDiffer` unless `select` returns the same for the body of each response to GET `path`."""
    selected = [
        select(json.loads(service.request("GET", path, version=version))) for service in (ours, reference)
    ]
    if selected[0] != selected[1]:
        raise ServicesDiffer(
            f"The services differ on {path}: ours returns {str(selected[0])[:500]},"
            f" the reference {str(selected[1])[:500]}"
        )


def _provider_count(body: Any) -> int:
    return len(body["resource_providers"])


def _candidates(body: Any) -> tuple[set[str], Any]:
    """Return allocation requests and provider summaries in a form that does not depend on their order."""
    for request in body["allocation_requests"]:
        for uuids in request["mappings"].values():
            uuids.sort()
    for summary in body["provider_summaries"].values():
        summary["traits"].sort()
    requests = {json.dumps(request, sort_keys=True) for request in body["allocation_requests"]}
    return requests, body["provider_summaries"]
