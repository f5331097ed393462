"""Sets of root providers that the filters of a request allow, each of which one index answers.

A set is a necessary condition on a tree: it has a provider in one of some aggregates, or with some traits.
The conditions on each supplier are stricter, so the sets only exclude roots early. PostgreSQL intersects the
sets in the order of the root ids. That takes 0.1 µs for each member of an aggregate, and ends with the last
root that is needed; a scan that fails takes 3 µs for each root.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from itertools import chain, islice

from sqlalchemy import FromClause, Select, intersect, select, union

from placement_svc.db.filters import has_traits, is_any
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.sharing import SharedSupplies, aggregates_serving_required
from placement_svc.db.search.tree_conditions import is_after_cursor
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import provider_aggregates, resource_providers

MAX_SETS = 8
"""The most sets that a search uses."""


class SetSize(Enum):
    """Which sets a strategy uses: only small ones; also large ones that an index has in order; or all."""

    SMALL = auto()
    SMALL_OR_ORDERED = auto()
    ANY = auto()


_member_of = shared(provider_aggregates.alias("member_of"))
_provider = shared(resource_providers.alias("provider"))


def roots_in_sets(
    criteria: SearchCriteria, shared_supplies: SharedSupplies, size: SetSize, *, randomized: bool
) -> FromClause | None:
    """Return the roots in all sets of a size, with the column `root_id` in ascending order.

    Return None if there is no set.
    """
    all_sets = chain(
        _trait_sets(criteria, shared_supplies, size), _aggregate_sets(criteria, shared_supplies, size)
    )
    sets = list(islice(all_sets, MAX_SETS))
    if not sets:
        return None
    if not randomized:
        sets = [each.where(is_after_cursor(each.selected_columns.root_id)) for each in sets]
    roots = intersect(*sets) if len(sets) > 1 else sets[0].distinct()
    # The OFFSET makes PostgreSQL read the sets in order, instead of probing them root by root.
    return roots.order_by("root_id").offset(0).subquery("roots_in_sets")


def has_small_set(criteria: SearchCriteria, shared_supplies: SharedSupplies) -> bool:
    """Return whether one of the sets is so small that all its roots are best examined at once."""
    aggregate_sets = [*criteria.root_member_of.any_of, *_required_aggregates(criteria, shared_supplies)]
    if not criteria.small_aggregate_sets.isdisjoint(aggregate_sets):
        return True
    trait_sets = _trait_sets(criteria, shared_supplies, SetSize.SMALL)
    return next(trait_sets, None) is not None


def _aggregate_sets(
    criteria: SearchCriteria, shared_supplies: SharedSupplies, size: SetSize
) -> Iterator[Select[int]]:
    """Yield the roots of the members of each set of aggregates that a demand requires.

    First yield the roots that are members themselves, for each set of `root_member_of`.
    """
    root_sets = dict.fromkeys(criteria.root_member_of.any_of)
    supplier_sets = _required_aggregates(criteria, shared_supplies)
    is_root = (_member_of.c.provider_id == _member_of.c.root_id,)
    for any_of, conditions in chain(
        ((each, is_root) for each in root_sets), ((each, ()) for each in supplier_sets)
    ):
        members = select(_member_of.c.root_id).where(*conditions)
        is_small = any_of in criteria.small_aggregate_sets
        if len(any_of) == 1 and (is_small or size is not SetSize.SMALL):
            yield members.where(_member_of.c.aggregate_id == min(any_of))
        elif is_small or size is SetSize.ANY:
            yield members.where(is_any(_member_of.c.aggregate_id, any_of))


def _required_aggregates(
    criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[frozenset[int]]:
    """Return the sets of aggregates in one of which each tree has a provider."""
    return dict.fromkeys(
        any_of
        for each in dict.fromkeys(criteria.by_demand)
        if each not in shared_supplies
        for any_of in each.member_of.any_of
    )


def _trait_sets(
    criteria: SearchCriteria, shared_supplies: SharedSupplies, size: SetSize
) -> Iterator[Select[int]]:
    """Yield the roots of the providers with the traits that each suffixed, or the unsuffixed, group requires.

    Also yield the roots with the traits that `root_required` requires. In the unsuffixed group, sharing
    providers can have the traits.
    """

    def is_listed(sets: Iterable[frozenset[int]]) -> bool:
        return size is SetSize.ANY or not criteria.small_trait_sets.isdisjoint(sets)

    root_required = criteria.root_required
    if root_required.any_of and is_listed(root_required.any_of):
        conditions = has_traits(_provider, root_required.any_of, root_required.forbidden)
        yield select(_provider.c.root_id).where(_provider.c.parent_id.is_(None), *conditions)
    for each in dict.fromkeys(criteria.by_demand):
        sets = each.required.any_of
        if sets and each not in shared_supplies and is_listed(sets):
            yield select(_provider.c.root_id).where(*has_traits(_provider, sets, each.required.forbidden))
    for number, any_of in enumerate(criteria.rules.unsuffixed_required):
        if is_listed([any_of]):
            own = select(_provider.c.root_id).where(*has_traits(_provider, [any_of]))
            aggregate_ids = aggregates_serving_required(shared_supplies, number)
            if not aggregate_ids:
                yield own
                continue
            served = select(_member_of.c.root_id).where(is_any(_member_of.c.aggregate_id, aggregate_ids))
            roots = union(own, served).subquery()
            yield select(roots.c.root_id)
