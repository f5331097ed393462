"""The command `fits`."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from placement_svc.client.service_client import ServiceClient
from placement_svc.commands.listing import Listing
from placement_svc.commands.query import limit_option, query_command, request_path
from placement_svc.commands.report import Part, Report, amounts, sentence


@query_command("fits")
@click.argument("request")
@limit_option
def count_fits(service: ServiceClient, request: str, limit: int) -> Report:
    """Count how often a REQUEST still fits, in all and on each host.

    REQUEST is the query string of a request for allocation candidates. It can contain without=UUID to
    leave out hosts. The exit status is 1 if it does not fit at all.
    """
    body = service.get(request_path("/allocation_candidates/capacity", request, limit=str(limit)))
    rows = [[root["name"], root["uuid"], root["fits"], root["binding"]] for root in body["roots"]]
    listing = Listing(("Host", "UUID", "Fits", "Limited by"), rows)
    return Report(body, listing, list(_parts(body, listing)), is_success=body["fits"] > 0)


def _parts(body: Mapping[str, Any], listing: Listing) -> Iterator[Part]:
    fits = f"{body['fits']:,}"
    yield sentence(f"Fits {fits} times." if body["bound"] == "exact" else f"Fits at least {fits} times.")
    if body["binding"]:
        yield sentence(f"Limited by: {amounts(body['binding'])}")
    if body["stranded"]:
        yield sentence(f"Free but unusable for this request: {amounts(body['stranded'])}")
    if listing.rows:
        yield listing
    if body.get("links"):
        yield sentence("More hosts: raise --limit.")
    if body.get("groups"):
        groups = [[group["aggregate"], group["fits"]] for group in body["groups"]]
        yield Listing(("Aggregate", "Fits"), groups)
