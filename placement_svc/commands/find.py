"""The command `find`."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import click

from placement_svc.client.service_client import ServiceClient, StatusError
from placement_svc.commands.listing import Listing
from placement_svc.commands.query import get, limit_option, query_command
from placement_svc.commands.report import Report, amounts, sentence, usual_uuid

_TRAIT = re.compile(r"[A-Z0-9_]+")
BATCH_SIZE = 200
"""Providers of a consumer that one request names; a service limits their number (`PLACEMENT_MAX_ITEMS`)."""

_HEADINGS = ("Match", "Provider", "UUID", "Root UUID", "Usages")


@query_command("find")
@click.argument("text", metavar="TRAIT|AGGREGATE|CONSUMER|NAME")
@limit_option
def find_providers(service: ServiceClient, text: str, limit: int) -> Report:
    """Find providers by trait, aggregate, consumer, uuid or name.

    For the uuid of a consumer, they are those from which it has allocations.

    The exit status is 1 if nothing is found.
    """
    if not text.strip():
        raise click.UsageError("The text to find is empty: placement-svc top lists all hosts.")
    found: dict[str, list[Any]] = {}
    more = False
    for match, queries in _queries(service, text):
        try:
            pages = [_page(service, limit, query) for query in queries]
        except StatusError as error:
            # A text that looks like a trait or a uuid need not be one.
            if match in ("trait", "aggregate") and error.status == 400:
                continue
            raise
        left = limit - sum(map(len, found.values()))
        providers = sorted(chain.from_iterable(page["resource_providers"] for page in pages), key=_name)
        found[match] = providers[:left]
        more = more or any(page["links"] for page in pages) or len(providers) > left
    rows = [[match, *_cells(provider)] for match, providers in found.items() for provider in providers]
    listing = Listing(_HEADINGS, rows)
    if not rows:
        nothing = f"No resource provider has the trait, aggregate, consumer, uuid or name {text}."
        return Report(found, listing, [sentence(nothing)], is_success=False)
    # Two uuids do not fit on one line of a narrow terminal.
    shown = [[row[0], row[1], row[2], row[4]] for row in rows]
    parts = [Listing(("Match", "Provider", "UUID", "Usages"), shown)]
    notes = [sentence(f"There are more: raise --limit, which is {limit}.")] if more else []
    return Report(found, listing, [*parts, *notes])


def _queries(service: ServiceClient, text: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield what a text can be, and the queries for its providers."""
    if uuid := usual_uuid(text):
        # An aggregate has the form in which a client has written it.
        yield "aggregate", [{"member_of": f"in:{','.join(dict.fromkeys((text, text.lower(), uuid)))}"}]
        yield "uuid", [{"uuid": uuid}]
        consumers = get(service, "/allocations", consumer_uuid=uuid)["consumers"]
        if used := [provider for consumer in consumers.values() for provider in consumer["allocations"]]:
            batches = (used[start : start + BATCH_SIZE] for start in range(0, len(used), BATCH_SIZE))
            yield "consumer", [{"uuid": f"in:{','.join(batch)}"} for batch in batches]
    elif _TRAIT.fullmatch(text):
        yield "trait", [{"required": text}]
    yield "name", [{"name": f"contains:{text}"}]


def _page(service: ServiceClient, limit: int, query: dict[str, str]) -> dict[str, Any]:
    """Return the first providers by name that a query finds."""
    page: dict[str, Any] = get(
        service, "/resource_providers", include="inventories,usages", sort_by="name", limit=limit, **query
    )
    return page


def _name(provider: dict[str, Any]) -> str:
    return str(provider["name"])


def _cells(provider: dict[str, Any]) -> list[str]:
    return [
        provider["name"],
        provider["uuid"],
        provider["root_provider_uuid"],
        amounts(provider["usages"]),
    ]
