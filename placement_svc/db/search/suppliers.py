"""Who can supply a demand, as SQL (`spec/candidates.md 3.2 to 3.4`)."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Select, and_, not_, or_, select

from placement_svc.db.filters import fits, has_any_trait, in_any_aggregate
from placement_svc.db.search.requests import Ids, Needs
from placement_svc.db.tables import inventories, resource_providers


def suppliers(needs: Needs) -> Select[int, int]:
    """Return the query of (provider_id, root_id) of all providers that can supply a demand alone."""
    if needs.resources:
        (class_id, amount), *others = needs.resources.items()
        stock = inventories.alias()
        query = select(stock.c.provider_id, stock.c.root_id).where(fits(stock, class_id, amount))
        provider_id, root_id = stock.c.provider_id, stock.c.root_id
        for class_id, amount in others:
            other = inventories.alias()
            query = query.join(other, other.c.provider_id == provider_id).where(fits(other, class_id, amount))
    else:
        provider = resource_providers.alias()
        provider_id, root_id = provider.c.id, provider.c.root_id
        query = select(provider_id.label("provider_id"), root_id)
    if needs.tree is not None:
        query = query.where(root_id == needs.tree)
    return query.where(*with_traits(provider_id, needs.traits), *_member_of(provider_id, root_id, needs))


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
