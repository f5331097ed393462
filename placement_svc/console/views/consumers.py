"""Consumers: the list, and one consumer with the trees that it uses."""

from dataclasses import replace
from typing import Any

from flask import Blueprint, render_template

from placement_svc.api.context import reader
from placement_svc.console.context import PROVIDER_RULES, allows, load_form, visible_parts, visible_project
from placement_svc.console.lists import keep_form, page_links, with_page_size
from placement_svc.console.trees import TreeNode, order_tree
from placement_svc.db import consumer_pages, provider_pages
from placement_svc.db.connections.engine import Transaction
from placement_svc.domain.consumers import Consumer, ConsumerFilter
from placement_svc.domain.errors import NotFound
from placement_svc.domain.pages import PageRequest
from placement_svc.domain.providers import ProviderFilter
from placement_svc.schemas.consumers import ConsumersQuery
from placement_svc.schemas.pages import parse_page
from placement_svc.schemas.scalars import UUID_KEY

bp = Blueprint("consumers", __name__)

MAX_PROVIDERS = 500
"""The most providers of a consumer that its page shows."""


@bp.get("/console/consumers")
@keep_form("consumers.html")
def show_list() -> str:
    """Show a page of the consumers that match the query."""
    query = load_form(ConsumersQuery)
    page = with_page_size(parse_page(query, UUID_KEY))
    is_allowed, project_id = visible_project("consumers:list", query.get("project_id"))
    shows_providers = allows("allocations:list")
    needs_providers = "resource_provider" in query or "in_tree" in query
    if not is_allowed or (needs_providers and not shows_providers):
        return render_template("refused.html", title="Consumers", refused="list these consumers")
    keys = ConsumerFilter.__dataclass_fields__
    wanted = ConsumerFilter(**{key: value for key, value in query.items() if key in keys})
    wanted = replace(wanted, project_id=project_id)
    found = reader().read(consumer_pages.find_page, wanted, page, with_allocations=shows_providers)
    return render_template(
        "consumers.html",
        query=query,
        consumers=found.elements,
        sums=[_summed(each.allocations) for each in found.elements],
        own_project=project_id if project_id != query.get("project_id") else None,
        **page_links(page, found),
    )


def _summed(allocations: Any) -> dict[str, int]:
    """Return the amounts of a consumer by resource class."""
    sums: dict[str, int] = {}
    for of_provider in (allocations or {}).values():
        for name, amount in of_provider["resources"].items():
            sums[name] = sums.get(name, 0) + amount
    return sums


@bp.get("/console/consumers/<uuid>")
def show_one(uuid: str) -> str:
    """Show one consumer, and what it has of each provider."""
    shows = visible_parts(PROVIDER_RULES)

    def read(connection: Transaction) -> tuple[Consumer, dict[str, Any] | None, list[TreeNode]]:
        consumer = _get(connection, uuid)
        if not allows("consumers:show", {"project_id": consumer.project_id}):
            # The caller must not learn that a consumer of another project exists.
            raise consumer_pages.not_found(uuid)
        if not allows("allocations:list"):
            return consumer, None, []
        [details] = consumer_pages.find(connection, [consumer.uuid])
        allocations = dict(details.allocations or {})
        if not shows["providers"]:
            return consumer, allocations, []
        wanted = ProviderFilter(uuids=frozenset(allocations))
        parts = ("inventories", "usages") if shows["inventories"] else ()
        found = provider_pages.find_page(connection, wanted, parts, PageRequest(MAX_PROVIDERS))
        return consumer, allocations, order_tree(found.elements)

    consumer, allocations, nodes = reader().read(read)
    return render_template(
        "consumer.html",
        shows=shows,
        consumer=consumer,
        allocations=allocations,
        nodes=nodes,
        unnamed=[] if shows["providers"] else sorted(allocations or ())[:MAX_PROVIDERS],
        sums=_summed(allocations),
    )


def _get(connection: Transaction, uuid: str) -> Consumer:
    """Return a consumer; raise `NotFound`.

    A uuid in capitals is that of a consumer that is stored like this, or else of the one in small letters.
    """
    try:
        return consumer_pages.get(connection, uuid)
    except NotFound:
        return consumer_pages.get(connection, uuid.lower())
