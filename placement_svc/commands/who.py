"""The command `who`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from placement_svc.client.service_client import ServiceClient
from placement_svc.commands.listing import Listing
from placement_svc.commands.lookup import find_tree, held_from, not_found, root_of
from placement_svc.commands.query import get_pages, query_command
from placement_svc.commands.report import Part, Report, amounts, sentence

_HEADINGS = ("Project", "Consumer", "Type", "User", "Allocations here")
SHOWN_CONSUMERS = 100


@query_command("who")
@click.argument("provider", metavar="NAME|UUID")
def list_consumers(service: ServiceClient, provider: str) -> Report:
    """List the consumers that use a host, by project.

    NAME|UUID names any provider of the host. The amounts are those from all its providers. The exit
    status is 1 if there is no such provider, or nothing uses it.
    """
    providers = find_tree(service, provider)
    if not providers:
        return not_found(provider, Listing(_HEADINGS, []), {"projects": [], "consumers": []})
    root = root_of(providers)
    consumers = [
        (consumer, held_from(providers, consumer))
        for consumer in get_pages(
            service, "/consumers", "consumers", in_tree=root["uuid"], include="allocations"
        )
    ]
    consumers.sort(key=lambda each: (each[0]["project_id"], each[0]["uuid"]))
    projects = _projects(consumers)
    rows = [
        [each["project_id"], each["uuid"], each["consumer_type"], each["user_id"], amounts(held)]
        for each, held in consumers
    ]
    document = {
        "root": {"uuid": root["uuid"], "name": root["name"]},
        "projects": projects,
        "consumers": [consumer for consumer, _ in consumers],
    }
    listing = Listing(_HEADINGS, rows)
    parts = list(_parts(root["name"], projects, listing))
    return Report(document, listing, parts, is_success=bool(consumers))


def _projects(consumers: Sequence[tuple[Mapping[str, Any], Counter[str]]]) -> list[dict[str, Any]]:
    """Return the number of consumers and the usages of each project, as in a list of projects."""
    numbers: Counter[str] = Counter()
    usages: dict[str, Counter[str]] = {}
    for consumer, held in consumers:
        numbers[consumer["project_id"]] += 1
        usages.setdefault(consumer["project_id"], Counter()).update(held)
    return [
        {"project_id": project, "consumers": numbers[project], "usages": dict(usages[project])}
        for project in usages
    ]


def _parts(name: str, projects: list[dict[str, Any]], listing: Listing) -> Iterator[Part]:
    if not projects:
        yield sentence(f"Nothing uses {name}.")
        return
    rows = [[each["project_id"], each["consumers"], amounts(each["usages"])] for each in projects]
    yield Listing(("Project", "Consumers", "Usages"), rows)
    shown = [[*row[:3], row[4]] for row in listing.rows[:SHOWN_CONSUMERS]]
    yield Listing(("Project", "Consumer", "Type", "Allocations here"), shown)
    if len(shown) < len(listing.rows):
        yield sentence(f"... and {len(listing.rows) - len(shown):,} more consumers: --csv lists all.")
