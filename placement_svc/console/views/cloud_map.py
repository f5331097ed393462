"""The map: every host a cell, filled by its usage."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, jsonify, render_template

from placement_svc.api.context import reader
from placement_svc.console.context import allows, here, load_form
from placement_svc.console.lists import keep_form
from placement_svc.db import host_map
from placement_svc.domain.errors import Invalid
from placement_svc.domain.hosts import HostMap, MapCell
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.http.json import integer
from placement_svc.http.policy import enforce
from placement_svc.schemas.console import MapQuery, host_filter

bp = Blueprint("cloud_map", __name__)

RULES = ("resource_providers:list", "capacity")
"""The policy rules of the endpoints that return the same data; aggregates and traits need one more."""

GROUP_RULES = {
    "aggregate": "resource_providers:aggregates:list",
    "trait": "resource_providers:traits:list",
}

MAX_HOSTS = 20_000
"""The most hosts on the map."""

ROWS = 50
"""The hosts on one page of the table."""


def _read(query: Mapping[str, str]) -> HostMap:
    group_by = query.get("group_by")
    if (group_by == "trait") != ("group_trait" in query):
        raise Invalid(f"{QUERY_ERROR}'group_by' trait and 'group_trait' need each other")
    if "size_by" in query and "fill" not in query:
        raise Invalid(f"{QUERY_ERROR}'size_by' needs 'fill': it compares the capacities of one class")
    return reader().read(
        host_map.read_map,
        host_filter(dict(query)),
        fill=query.get("fill"),
        by_aggregate=group_by == "aggregate",
        by_trait=query.get("group_trait"),
        max_hosts=MAX_HOSTS,
    )


@bp.get("/console/map")
@keep_form("map.html")
def show() -> str:
    """Show the map, and a page of its hosts as a table."""
    query = load_form(MapQuery)
    rules = [*RULES, *(GROUP_RULES[name] for name in (query.get("group_by"),) if name)]
    if not all(map(allows, rules)):
        return render_template("refused.html", title="Map", refused="list hosts, or what groups them")
    found = _read(query)
    number = int(query.get("page", "1"))
    last = max(1, -(-len(found.cells) // ROWS))
    return render_template(
        "map.html",
        query=query,
        found=found,
        rows=found.cells[(number - 1) * ROWS : number * ROWS],
        number=number,
        last=last,
        previous_url=here(page=str(min(number - 1, last))) if number > 1 else None,
        next_url=here(page=str(number + 1)) if number < last else None,
        data_url=here("cloud_map.show_data", page=None),
    )


@bp.get("/console/map.json")
def show_data() -> Response:
    """Return the map as columns: each host is an array, and groups and classes are numbers."""
    query = load_form(MapQuery)
    for rule in RULES:
        enforce(rule)
    if "group_by" in query:
        enforce(GROUP_RULES[query["group_by"]])
    found = _read(query)
    names = list(dict.fromkeys(cell.resource_class for cell in found.cells if cell.resource_class))
    numbers = {name: number for number, name in enumerate(names)}
    hosts = [
        (cell.uuid, cell.name, cell.group, numbers.get(cell.resource_class or "", -1), *_amounts(cell))
        for cell in found.cells
    ]
    return jsonify({"groups": found.groups, "classes": names, "hosts": hosts, "has_more": found.has_more})


def _amounts(cell: MapCell) -> tuple[Any, Any]:
    return integer(cell.used), integer(cell.capacity)
