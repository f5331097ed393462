"""The command `why`."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from placement_svc.client.service_client import ServiceClient
from placement_svc.commands.listing import Cell, Listing
from placement_svc.commands.query import query_command, request_path
from placement_svc.commands.report import Part, Report, sentence
from placement_svc.domain.pasted_query import request_query

_HEADINGS = (
    *("Group", "Filter", "Part of the request", "Resource class"),
    *("Alone", "Left", "Sole blocker", "Wanted", "Best", "Sum free"),
)

_LEGEND = (
    "Alone: hosts that pass this filter. Left: hosts that pass it and all above it in its group."
    " Sole blocker: hosts that this filter alone excludes."
)


@query_command("why")
@click.argument("request")
@click.option("--host", help="Name or uuid of one host to explain.")
def explain_request(service: ServiceClient, request: str, host: str | None) -> Report:
    """Explain why a REQUEST has no candidates, or few.

    REQUEST is the query string, such as 'resources=VCPU:4&required=HW_CPU_X86_AVX2', or the URL or the
    curl command of a request. The exit status is 1 if it has no candidates.
    """
    root = {} if host is None else {"root": host}
    body = service.get(request_path("/allocation_candidates/explanation", request_query(request), **root))
    headings = (*_HEADINGS, "Has") if "root" in body else _HEADINGS
    listing = Listing(headings, list(_rows(body)))
    return Report(body, listing, list(_parts(body, listing)), is_success=body["has_candidates"])


def _rows(body: Mapping[str, Any]) -> Iterator[list[Cell]]:
    """Yield a row for each filter; those of the whole tree have the group ``tree``."""
    groups = [*body["groups"], {"suffix": "tree", "filters": body["tree"]}]
    values = ("query", "resource_class", "alone", "left", "sole_blocker", "wanted", "best", "sum_free")
    for group in groups:
        for each in group["filters"]:
            row = [group["suffix"], each["code"], *(each.get(name) for name in values)]
            if "root" in body:
                has = each.get("has")
                row.append(", ".join(has) if isinstance(has, list) else has)
            yield row


def _parts(body: Mapping[str, Any], listing: Listing) -> Iterator[Part]:
    yield sentence(body["summary"])
    last = "Has" if "root" in body else "Best"
    columns = (0, 1, 2, 4, 5, 6, listing.headings.index(last))
    headings = ("Group", "Filter", "Request", "Alone", "Left", "Sole blocker", last)
    yield Listing(headings, [[row[column] for column in columns] for row in listing.rows])
    yield sentence(_LEGEND)
    failures = body["roots"]["by_first_failure"]
    if failures:
        yield Listing(("First failure", "Hosts"), list(failures.items()))
    if body.get("relaxations"):
        rows = [[_change(each), each["roots"]] for each in body["relaxations"]]
        yield Listing(("With this change", "Hosts with candidates"), rows)
    if body.get("nearest"):
        rows = [
            [each["root"]["name"], each["root"]["uuid"], tuple(map(_failure, each["fails"]))]
            for each in body["nearest"]
        ]
        yield Listing(("Nearest host", "UUID", "Lacks"), rows)


def _change(relaxation: Mapping[str, Any]) -> str:
    """Return the change of the request that a relaxation describes."""
    without = relaxation.get("without", [])
    removed = [without] if isinstance(without, str) else without
    changes = [f"without {part}" for part in removed]
    if "instead" in relaxation:
        changes.append(f"{relaxation['instead']} instead")
    return " and ".join(changes)


def _failure(entry: Mapping[str, Any]) -> str:
    """Return what a host lacks, on one line."""
    if not entry.get("resource_class"):
        # The part of the request names the filter and the group.
        return str(entry.get("query") or entry["code"])
    words = (entry.get("suffix"), entry["code"], entry["resource_class"])
    text = " ".join(str(word) for word in words if word)
    return f"{text}: {entry['best']} of {entry['wanted']}" if entry.get("best") is not None else text
