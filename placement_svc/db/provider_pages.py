"""Pages of resource providers (`docs/spec/extensions.md 6.1 and 6.2`).

The unique indexes on uuid and on name have these orders: a page reads as many entries as it has providers,
and those in between that a filter excludes. No index has the order of the used or free amounts of a class,
which would have to change with every claim. So a page in such an order reads all providers and all
inventories of the class, wherever the page is, and keeps the first ones while it sorts. A page by level
sorts all providers that match, which are those of a tree.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, select

from placement_svc.db import names, provider_parts, providers
from placement_svc.db.filters import free_amount
from placement_svc.db.pages import Order, select_page, to_page
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.pages import Page, PageRequest, Position, SortKey
from placement_svc.domain.providers import Provider, ProviderDetails, ProviderFilter

_FIELDS = tuple(Provider.__dataclass_fields__)

_parent = shared(resource_providers.alias("parent"))
_root = shared(resource_providers.alias("root"))

# PostgreSQL evaluates the subqueries for parent and root after LIMIT, by keys. For joins with 1,000 rows, it
# reads all providers; and in the order of an amount, it sorts the joined rows of all providers.
_select_providers = select(
    resource_providers.c.id,
    resource_providers.c.uuid,
    resource_providers.c.name,
    resource_providers.c.generation,
    select(_parent.c.uuid)
    .where(_parent.c.id == resource_providers.c.parent_id)
    .scalar_subquery()
    .label("parent_uuid"),
    select(_root.c.uuid)
    .where(_root.c.id == resource_providers.c.root_id)
    .scalar_subquery()
    .label("root_uuid"),
    providers.modified.label("modified"),
)


def find_page(
    connection: Connection, provider_filter: ProviderFilter, include: Collection[str], page: PageRequest
) -> Page[ProviderDetails]:
    """Return a page of the resource providers that match all filters, with the parts in `include`.

    Raises `Invalid` for an unknown name of a trait or resource class. One statement, and one for each part;
    names in the filters and in the sort key are looked up before.
    """
    order, sorted_inventory = _order(connection, page.sort)
    conditions = providers.filter_conditions(connection, provider_filter)
    if conditions is None:
        return Page([], None, False)
    query = _select_providers.where(*conditions)
    if sorted_inventory is not None:
        query = query.outerjoin(inventories, sorted_inventory)
    if order.value is not None:
        query = query.add_columns(order.value.label("sort_value"))
    rows = connection.execute(select_page(query, order, page)).all()
    positions = [Position(row.uuid, None if order.value is None else row.sort_value) for row in rows]
    found = to_page(rows, page.limit, positions)
    parts = provider_parts.read(connection, [row.id for row in found.elements], include)
    details = [
        ProviderDetails(
            Provider(*(getattr(row, field) for field in _FIELDS)),
            {name: part(row.id) for name, part in parts.items()},
        )
        for row in found.elements
    ]
    return Page(details, found.last, found.has_more)


def _order(connection: Connection, sort: SortKey | None) -> tuple[Order, ColumnElement[bool] | None]:
    """Return the order, and the condition on the inventory whose amount is the sort key."""
    table = resource_providers.c
    if sort is None:
        return Order(table.uuid), None
    if sort.attribute == "name":
        return Order(table.uuid, table.name, sort.descending, is_value_unique=True), None
    if sort.attribute == "level":
        return Order(table.uuid, func.cardinality(table.path), sort.descending), None
    class_id = names.sort_class_id(connection, sort)
    amount: ColumnElement[Any] = inventories.c.used
    if sort.attribute == "free":
        amount = free_amount(inventories)
    of_class = and_(inventories.c.provider_id == table.id, inventories.c.resource_class_id == class_id)
    return Order(table.uuid, amount, sort.descending), of_class
