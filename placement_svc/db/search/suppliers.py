"""Who can supply a demand, as SQL (`spec/candidates.md 3.2 to 3.4`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from sqlalchemy import ColumnElement, FromClause, Select, and_, not_, or_, select

from placement_svc.db.filters import fits, has_any_trait, in_any_aggregate
from placement_svc.db.search.requests import Ids, Needs
from placement_svc.db.tables import inventories, resource_providers


@dataclass(frozen=True)
class Suppliers:
    """The query of all providers that can supply a demand alone, and its two columns."""

    query: Select[int, int]
    provider_id: ColumnElement[int]
    root_id: ColumnElement[int]


@cache
def _inventory(number: int) -> FromClause:
    """Return an alias of the inventories, always the same one: see `placement_svc.db.filters`."""
    return inventories.alias(f"inventory_{number}")


_provider = resource_providers.alias("supplier")


@lru_cache(maxsize=256)
def suppliers(needs: Needs) -> Suppliers:
    """Return who can supply a demand.

    It is asked for several times in one search, and schedulers ask for the same flavors all day long.
    """
    if needs.resources:
        columns = _inventory(0).c.provider_id, _inventory(0).c.root_id
        query = select(*columns)
        for number, (class_id, amount) in enumerate(needs.resources):
            inventory = _inventory(number)
            if number:
                query = query.join(inventory, inventory.c.provider_id == columns[0])
            query = query.where(fits(inventory, class_id, amount))
    else:
        columns = _provider.c.id, _provider.c.root_id
        query = select(columns[0].label("provider_id"), columns[1])
    if needs.tree is not None:
        query = query.where(columns[1] == needs.tree)
    query = query.where(*with_traits(columns[0], needs.traits), *_member_of(*columns, needs))
    return Suppliers(query, *columns)


def suppliers_with_any_trait(all_needs: Iterable[Needs], trait_ids: frozenset[int]) -> Suppliers:
    """Return who has one of these traits and can supply one of some demands of a single class each."""
    inventory = _inventory(0)
    demanded = (item for needs in all_needs for item in needs.resources)
    query = select(inventory.c.provider_id, inventory.c.root_id).where(
        or_(*(fits(inventory, class_id, amount) for class_id, amount in demanded)),
        has_any_trait(inventory.c.provider_id, trait_ids),
    )
    return Suppliers(query, inventory.c.provider_id, inventory.c.root_id)


def with_traits(provider_id: ColumnElement[int], traits: Ids) -> Iterable[ColumnElement[bool]]:
    """Return the conditions that a provider has the traits required and none of those forbidden."""
    for clause in traits.required:
        yield has_any_trait(provider_id, clause)
    if traits.forbidden:
        yield not_(has_any_trait(provider_id, traits.forbidden))


def _member_of(
    provider_id: ColumnElement[int], root_id: ColumnElement[int], needs: Needs
) -> Iterable[ColumnElement[bool]]:
    """Return the conditions of `member_of`; for the unsuffixed group a root spans its tree."""
    aggregates = needs.aggregates
    if aggregates.required:
        own = and_(*(in_any_aggregate(provider_id, clause) for clause in aggregates.required))
        roots = and_(*(in_any_aggregate(root_id, clause) for clause in aggregates.required))
        yield or_(own, roots) if needs.unsuffixed else own
    if aggregates.forbidden:
        yield not_(in_any_aggregate(provider_id, aggregates.forbidden))
