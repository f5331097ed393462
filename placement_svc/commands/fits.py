"""The command `fits`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import click

from placement_svc.client.service_client import ServiceClient
from placement_svc.commands.listing import Listing
from placement_svc.commands.query import limit_option, query_command, request_path
from placement_svc.commands.report import Part, Report, amounts, sentence
from placement_svc.domain.fits import DEFAULT_MAX, END_OF_COUNT, OTHER
from placement_svc.domain.pasted_query import request_query
from placement_svc.domain.wording import counted


@query_command("fits")
@click.argument("request")
@limit_option
def count_fits(service: ServiceClient, request: str, limit: int) -> Report:
    """Count how often a REQUEST still fits, in all and on each host.

    REQUEST is the query string of a request for allocation candidates, its URL or its curl command. It can
    contain without=UUID to leave out hosts. The exit status is 1 if it does not fit at all.
    """
    query = request_query(request)
    body = service.get(request_path("/allocation_candidates/capacity", query, limit=str(limit)))
    maximum = int(dict(parse_qsl(query)).get("max", DEFAULT_MAX))
    return Report(body, _listing(body, str), list(_parts(body, maximum, limit)), is_success=body["fits"] > 0)


def _parts(body: Mapping[str, Any], maximum: int, limit: int) -> Iterator[Part]:
    fits = f"{body['fits']:,}"
    times = counted(body["fits"], "time")
    yield sentence(f"Fits {times}." if body["bound"] == "exact" else f"Fits at least {times}.")
    if body["binding"]:
        limits = {_limit(binding): count for binding, count in body["binding"].items()}
        yield sentence(f"Limited by: {amounts(limits)}")
    if body["stranded"]:
        is_stopped = body["bound"] != "exact" and body["fits"] == maximum
        unusable = "Free but unusable for this request"
        free = f"Still free when counting stopped at {fits}" if is_stopped else unusable
        yield sentence(f"{free}: {amounts(body['stranded'])}")
    if body["roots"]:
        yield _listing(body, _limit)
    if body.get("links"):
        yield sentence("More hosts: raise --limit.")
    if body.get("groups"):
        groups = [[group["aggregate"], group["fits"]] for group in body["groups"]]
        yield Listing(("Aggregate", "Fits"), groups[:limit])
        if len(groups) > limit:
            yield sentence("More aggregates: raise --limit.")


def _listing(body: Mapping[str, Any], limit: Callable[[str], str]) -> Listing:
    """Return the hosts; `limit` returns the text of a binding."""
    rows = [[root["name"], root["uuid"], root["fits"], limit(root["binding"])] for root in body["roots"]]
    return Listing(("Host", "UUID", "Fits", "Limited by"), rows)


def _limit(binding: str) -> str:
    return END_OF_COUNT if binding == OTHER else binding
