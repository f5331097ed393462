"""Who can supply a demand, as SQL (`docs/spec/candidates.md 3.2 to 3.4`)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from sqlalchemy import ColumnElement, FromClause, Select, and_, false, func, not_, or_, select

from placement_svc.db.filters import fits, has_traits, in_any_aggregate
from placement_svc.db.search.requests import Needs
from placement_svc.db.tables import inventories, resource_providers


@dataclass(frozen=True)
class Suppliers:
    """The query of all providers that can supply a demand alone, and its two columns."""

    query: Select[int, int]
    provider_id: ColumnElement[int]
    root_id: ColumnElement[int]

    def unjoined(self) -> "Suppliers":
        """Return the same, in a form that PostgreSQL never turns into a join."""
        return replace(self, query=self.query.offset(0))


@cache
def _inventory(number: int) -> FromClause:
    """Return an alias of the inventories, always the same one: see `placement_svc.db.filters`."""
    return inventories.alias(f"inventory_{number}")


_supplier = resource_providers.alias("supplier")


@lru_cache(maxsize=256)
def suppliers(needs: Needs) -> Suppliers:
    """Return who can supply a demand.

    It is asked for several times in one search, and schedulers ask for the same flavors all day long.
    """
    if needs.resources:
        provider_id, root_id = _inventory(0).c.provider_id, _inventory(0).c.root_id
        query = select(provider_id, root_id)
        for number, (class_id, amount) in enumerate(needs.resources):
            inventory = _inventory(number)
            if number:
                query = query.join(inventory, inventory.c.provider_id == provider_id)
            query = query.where(fits(inventory, class_id, amount))
        if needs.required:
            query = query.join(_supplier, _supplier.c.id == provider_id)
    else:
        provider_id, root_id = _supplier.c.id, _supplier.c.root_id
        query = select(provider_id.label("provider_id"), root_id)
    if needs.tree is not None:
        query = query.where(root_id == needs.tree)
    for condition in has_traits(_supplier, needs.required.any_of, needs.required.forbidden):
        # Hosts mostly have the same traits, and PostgreSQL takes many common ones together for a rarity.
        # Of COALESCE it has no opinion, so that it does not start from there.
        query = query.where(condition if needs.selective else func.coalesce(condition, false()))
    query = query.where(*_member_of(provider_id, root_id, needs))
    return Suppliers(query, provider_id, root_id)


def suppliers_with_traits(all_needs: Iterable[Needs], clauses: Iterable[frozenset[int]]) -> Suppliers:
    """Return who has a trait of each clause and can supply one of some demands of a single class each."""
    inventory = _inventory(0)
    demanded = (item for needs in all_needs for item in needs.resources)
    query = (
        select(inventory.c.provider_id, inventory.c.root_id)
        .join(_supplier, _supplier.c.id == inventory.c.provider_id)
        .where(
            or_(*(fits(inventory, class_id, amount) for class_id, amount in demanded)),
            *has_traits(_supplier, list(clauses)),
        )
    )
    return Suppliers(query, inventory.c.provider_id, inventory.c.root_id)


def _member_of(
    provider_id: ColumnElement[int], root_id: ColumnElement[int], needs: Needs
) -> Iterable[ColumnElement[bool]]:
    """Return the conditions of `member_of`; for the unsuffixed group a root spans its tree."""
    aggregates = needs.member_of
    if aggregates.any_of:
        own = and_(*(in_any_aggregate(provider_id, clause) for clause in aggregates.any_of))
        roots = and_(*(in_any_aggregate(root_id, clause) for clause in aggregates.any_of))
        yield or_(own, roots) if needs.unsuffixed else own
    if aggregates.forbidden:
        yield not_(in_any_aggregate(provider_id, aggregates.forbidden))
