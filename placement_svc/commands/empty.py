"""The command `empty`."""

from collections.abc import Mapping
from typing import Any

import click

from placement_svc.client.service_client import ServiceClient
from placement_svc.commands.listing import Listing
from placement_svc.commands.query import get, limit_option, query_command
from placement_svc.commands.report import Report, sentence

_KEYS = ("created_at", "request_id", "global_request_id", "user_id", "project_id", "query")
_HEADINGS = ("Created at", "Request id", "Global request id", "User id", "Project id", "Query")


@query_command("empty")
@click.option("--request-id", help="Show one search: its request id, or the global one of its client.")
@limit_option
def list_empty_searches(service: ServiceClient, request_id: str | None, limit: int) -> Report:
    """List the latest searches that found no candidates.

    The exit status is 1 if there are any.
    """
    query = {} if request_id is None else {"request_id": request_id}
    body = get(service, "/allocation_candidates/empty", limit=limit, **query)
    listing = Listing(_HEADINGS, [[each[key] for key in _KEYS] for each in body["empty"]])
    if not listing.rows:
        which = "search without candidates is stored"
        if request_id is not None:
            which = f"stored search has the request id {request_id}"
        return Report(body, listing, [sentence(f"No {which}.")])
    rows = [[_lines(each)] for each in body["empty"]]
    explain = sentence("To explain one against the current state: placement-svc why 'REQUEST'")
    table = Listing(("Time, request ids and REQUEST",), rows)
    more = [sentence(f"There are more: raise --limit, which is {limit}.")] if body["links"] else []
    return Report(body, listing, [table, explain, *more], is_success=False)


def _lines(search: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the time without fractions of a second, the request ids that are known, and the query."""
    ids = filter(None, (search["request_id"], search["global_request_id"]))
    return f"{search['created_at'][:19]}Z", *ids, search["query"]
