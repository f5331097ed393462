"""The command `tree`."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.tree import Tree

from placement_svc.client.service_client import ServiceClient
from placement_svc.commands.listing import Cell, Listing
from placement_svc.commands.lookup import Provider, find_tree, held_from, not_found, root_of
from placement_svc.commands.query import get, query_command
from placement_svc.commands.report import Part, Report, amounts, bar, percent, sentence, tree
from placement_svc.domain.inventory import Inventory

_PARTS = "inventories,usages,traits,aggregates"
_HEADINGS = (
    *("Provider", "UUID", "Parent UUID", "Resource class"),
    *("Total", "Reserved", "Allocation ratio", "Capacity", "Used"),
)

SHOWN_CONSUMERS = 20


@query_command("tree")
@click.argument("provider", metavar="NAME|UUID")
def show_tree(service: ServiceClient, provider: str) -> Report:
    """Show a host with its nested providers and consumers.

    NAME|UUID names any provider of the tree. The exit status is 1 if there is none.
    """
    providers = find_tree(service, provider, include=_PARTS)
    if not providers:
        return not_found(provider, Listing(_HEADINGS, []), {"resource_providers": [], "consumers": []})
    root = root_of(providers)
    page = get(service, "/consumers", in_tree=root["uuid"], include="allocations", limit=SHOWN_CONSUMERS)
    document = {"resource_providers": providers, "consumers": page["consumers"]}
    rows = [row for each in providers for row in _rows(each)]
    return Report(document, Listing(_HEADINGS, rows), list(_parts(providers, page)))


def _capacity(inventory: Mapping[str, Any]) -> int:
    fields = {name: inventory[name] for name in Inventory.__dataclass_fields__}
    return Inventory(**fields).capacity


def _rows(provider: Provider) -> Iterator[list[Cell]]:
    for name, inventory in provider["inventories"].items():
        yield [
            provider["name"],
            provider["uuid"],
            provider["parent_provider_uuid"],
            name,
            inventory["total"],
            inventory["reserved"],
            str(inventory["allocation_ratio"]),
            _capacity(inventory),
            provider["usages"][name],
        ]


def _parts(providers: list[Provider], page: Mapping[str, Any]) -> Iterator[Part]:
    yield _nested(providers)
    rows = [
        [
            consumer["uuid"],
            consumer["consumer_type"],
            consumer["project_id"],
            amounts(held_from(providers, consumer)),
        ]
        for consumer in page["consumers"]
    ]
    if not rows:
        yield sentence("No consumers.")
        return
    yield Listing(("Consumer", "Type", "Project", "Allocations here"), rows)
    if page["links"]:
        root = root_of(providers)
        yield sentence(f"There are more consumers: placement-svc who {root['uuid']} lists all of them.")


def _nested(providers: list[Provider]) -> Tree:
    nodes = {provider["uuid"]: _node(provider) for provider in providers}
    root = nodes[root_of(providers)["uuid"]]
    for provider in sorted(providers, key=lambda each: each["name"]):
        node = nodes[provider["uuid"]]
        if node is not root:
            nodes.get(provider["parent_provider_uuid"], root).children.append(node)
    return root


def _node(provider: Provider) -> Tree:
    """Return a node with a usage bar for each resource class, the traits and the aggregates."""
    lines = []
    longest = max(map(len, provider["inventories"]), default=0)
    for name, inventory in provider["inventories"].items():
        used, capacity = provider["usages"][name], _capacity(inventory)
        lines.append(
            f"{name:{longest}}  {bar(used, capacity)}  {percent(used, capacity):>4}  {used:,} of {capacity:,}"
        )
    for kind in ("traits", "aggregates"):
        if provider[kind]:
            lines.append(f"{kind}: {', '.join(provider[kind])}")
    return tree(f"{provider['name']}  {provider['uuid']}", lines)
