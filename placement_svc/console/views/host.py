"""One host: its tree, the providers that share with it, and its projects and consumers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import os_traits
from flask import Blueprint, redirect, render_template, url_for

from placement_svc.api.context import reader
from placement_svc.console.context import PROVIDER_RULES, load_form, visible_parts
from placement_svc.console.lists import page_links, with_page_size
from placement_svc.console.trees import TreeNode, order_tree
from placement_svc.db import aggregates, capacity, consumer_pages, provider_pages, providers
from placement_svc.db.connections.engine import Transaction
from placement_svc.domain.capacity import Amounts, CapacityGroup, Grouping
from placement_svc.domain.consumers import ConsumerDetails, ConsumerFilter
from placement_svc.domain.groups import Membership, RequestGroup
from placement_svc.domain.pages import Page, PageRequest, SortKey
from placement_svc.domain.providers import Provider, ProviderFilter
from placement_svc.schemas.pages import PageKeys, parse_page
from placement_svc.schemas.scalars import UUID_KEY

bp = Blueprint("host", __name__)

MAX_PROVIDERS = 500
"""The most providers of a tree, and of the sharing ones, that the page shows."""

PROJECTS = 20

RULES = PROVIDER_RULES | {
    "traits": ("resource_providers:traits:list",),
    "aggregates": ("resource_providers:aggregates:list",),
    "projects": ("capacity", "usages"),
    "consumers": ("consumers:list", "allocations:list"),
}
"""The policy rules of the endpoints that return the data of each part of the page."""


@dataclass(frozen=True)
class HostPage:
    """The data of the page; None for a part that the caller may not see."""

    root: Provider
    nodes: Sequence[TreeNode]
    has_more_providers: bool
    sums: Amounts
    sharing: Sequence[TreeNode] | None
    has_more_sharing: bool
    projects: Page[CapacityGroup] | None
    consumers: Page[ConsumerDetails] | None


@bp.get("/console/hosts/<uuid>")
def show(uuid: str) -> Any:
    """Show the tree of a host; a provider that is not a root leads to the page of its root."""
    page = with_page_size(parse_page(load_form(PageKeys), UUID_KEY))
    shows = visible_parts(RULES)
    if not shows["providers"]:
        return render_template("refused.html", title="Host", refused="list resource providers")
    found = reader().read(_read, uuid.lower(), shows, page)
    if isinstance(found, Provider):
        target = url_for("host.show", uuid=found.root_uuid, _anchor=f"p-{found.uuid}")
        return redirect(target, 303)
    links = page_links(page, found.consumers) if found.consumers else {}
    return render_template("host.html", page=found, shows=shows, **links)


def _read(
    connection: Transaction, uuid: str, shows: Mapping[str, bool], consumers: PageRequest
) -> HostPage | Provider:
    """Return the page of a host, or the provider with this uuid if it is not a root; raise `NotFound`."""
    root = providers.get(connection, uuid)
    if root.root_uuid != root.uuid:
        return root
    include = [part for part in ("inventories", "traits", "aggregates") if shows[part]]
    if shows["inventories"]:
        include.append("usages")
    tree_filter = ProviderFilter(group=RequestGroup(in_tree=root.uuid))
    # The root comes first, and each parent before its children.
    from_the_root = PageRequest(MAX_PROVIDERS, sort=SortKey("level"))
    tree = provider_pages.find_page(connection, tree_filter, include, from_the_root)
    sharing, has_more_sharing = None, False
    if shows["aggregates"] and shows["traits"]:
        sharing, has_more_sharing = _sharing(connection, root, include)
    projects = None
    if shows["projects"]:
        projects = capacity.find_page(connection, tree_filter, Grouping.PROJECT_ID, PageRequest(PROJECTS))
    return HostPage(
        root=root,
        nodes=order_tree(tree.elements),
        has_more_providers=tree.has_more,
        sums=capacity.sums(connection, tree_filter) if shows["inventories"] else {},
        sharing=sharing,
        has_more_sharing=has_more_sharing,
        projects=projects,
        consumers=consumer_pages.find_page(
            connection, ConsumerFilter(in_tree=root.uuid), consumers, with_allocations=True
        )
        if shows["consumers"]
        else None,
    )


def _sharing(connection: Transaction, root: Provider, include: Sequence[str]) -> tuple[list[TreeNode], bool]:
    """Return the providers of other trees that share with this one, and whether there are more."""
    uuids = aggregates.uuids_of_tree(connection, root.uuid)
    if not uuids:
        return [], False
    group = RequestGroup(
        required=Membership(any_of=(frozenset([os_traits.MISC_SHARES_VIA_AGGREGATE]),)),
        member_of=Membership(any_of=(uuids,)),
    )
    page = PageRequest(MAX_PROVIDERS)
    found = provider_pages.find_page(connection, ProviderFilter(group=group), include, page)
    nodes = [
        TreeNode(each.provider, 0, each.parts)
        for each in found.elements
        if each.provider.root_uuid != root.uuid
    ]
    return nodes, found.has_more
