"""The list of hosts, and the same list as CSV and JSON."""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, render_template

from placement_svc.api.context import reader
from placement_svc.api.pages import join_pieces, respond_with_page
from placement_svc.console.context import allows, load_form
from placement_svc.console.lists import keep_form, page_links, with_page_size
from placement_svc.db import host_pages
from placement_svc.db.connections.engine import Transaction
from placement_svc.domain.hosts import Host, HostFilter
from placement_svc.domain.pages import Page, PageRequest, SortKey
from placement_svc.http.json import integer, respond
from placement_svc.http.policy import enforce
from placement_svc.http.request_id import global_id
from placement_svc.schemas.console import HostsQuery, host_filter
from placement_svc.schemas.pages import MAX_LIMIT, parse_page
from placement_svc.schemas.scalars import DASHED_UUID

bp = Blueprint("hosts", __name__)

RULES = ("resource_providers:list", "capacity")
"""The policy rules of the endpoints that return the same data."""

MAX_COLUMNS = 5
"""The most resource classes that have a column of their own."""

CSV_COLUMNS = ("uuid", "name", "resource_class", "total", "reserved", "capacity", "used", "free")

BY_NAME = SortKey("name")


def _parse() -> tuple[HostFilter, PageRequest, dict[str, str]]:
    query = load_form(HostsQuery)
    sorted_query = query if "sort_by" in query else {"sort_by": BY_NAME.attribute, **query}
    page = parse_page(sorted_query)
    return host_filter(query), page, query


@bp.get("/console/hosts")
@keep_form("hosts.html")
def show() -> str:
    """Show a page of the hosts that match the query."""
    wanted, page, query = _parse()
    if not all(map(allows, RULES)):
        return render_template("refused.html", title="Hosts", refused="list hosts")
    page = with_page_size(page)

    def read(connection: Transaction) -> tuple[int, Page[Host]]:
        return host_pages.count(connection, wanted), host_pages.find_page(connection, wanted, page)

    count, found = reader().read(read)
    text = wanted.text.strip()
    classes = _classes(found.elements, wanted, page.sort)
    return render_template(
        "hosts.html",
        query=query,
        count=count,
        hosts=found.elements,
        uuid=text if DASHED_UUID.fullmatch(text) else None,
        request_id=global_id(text),
        columns=classes[:MAX_COLUMNS],
        class_count=len(classes),
        **page_links(page, found),
    )


def _classes(hosts: Any, wanted: HostFilter, sort: SortKey | None) -> list[str]:
    """Return the classes of these hosts: that of the filter and of the order, then those of most hosts."""
    counts: dict[str, int] = {}
    for host in hosts:
        for name in host.amounts:
            counts[name] = counts.get(name, 0) + 1
    chosen = [name for name in (wanted.resource_class, sort.resource_class if sort else "") if name]
    common = sorted(counts, key=lambda name: -counts[name])
    return list(dict.fromkeys([*chosen, *common]))


def _reader(wanted: HostFilter) -> Callable[[PageRequest], Page[Host]]:
    read = reader().read
    return lambda part: read(host_pages.find_page, wanted, part)


@bp.get("/console/hosts.json")
def show_json() -> Response:
    """Return all hosts that match the query as JSON, or a page of them with `limit`."""
    wanted, page, _ = _parse()
    for rule in RULES:
        enforce(rule)
    return respond_with_page("hosts", page, _reader(wanted), _to_json, elements_per_read=MAX_LIMIT)


def _to_json(host: Host) -> dict[str, Any]:
    amounts = {
        name: {key: integer(value) for key, value in of_class.items()}
        for name, of_class in host.amounts.items()
    }
    return {"uuid": host.uuid, "name": host.name, "providers": host.providers, "resource_classes": amounts}


@bp.get("/console/hosts.csv")
def show_csv() -> Response:
    """Return all hosts that match the query as CSV, a row for each host and resource class."""
    wanted, page, _ = _parse()
    for rule in RULES:
        enforce(rule)
    response = respond(join_pieces(_csv_line(CSV_COLUMNS), _csv_lines(page, _reader(wanted))))
    response.content_type = "text/csv; charset=UTF-8; header=present"
    response.headers["Content-Disposition"] = 'attachment; filename="hosts.csv"'
    return response


def _csv_lines(page: PageRequest, read: Callable[[PageRequest], Page[Host]]) -> Iterator[bytes]:
    while True:
        found = read(replace(page, limit=page.limit or MAX_LIMIT))
        for host in found.elements:
            for name, amounts in host.amounts.items() or [("", {})]:
                values = (amounts.get(key, "") for key in CSV_COLUMNS[3:])
                yield _csv_line((host.uuid, host.name, name, *values))
        if not found.has_more or page.limit:
            return
        page = replace(page, after=found.last)


def _csv_line(values: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(map(_csv_text, values))
    return text.getvalue().encode()


def _csv_text(value: object) -> str:
    """Return a cell that no spreadsheet takes for a formula: names may hold anything."""
    text = str(value)
    is_formula = isinstance(value, str) and text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{text}" if is_formula else text
