"""Sets of root providers that the filters of a request allow, each of which one index answers.

A set is a necessary condition on a tree: it has a provider in one of some aggregates, with some traits, or
with some amounts free; or its root has no forbidden ones. The conditions on each supplier are stricter, so
the sets only exclude roots early. PostgreSQL intersects the sets in the order of the root ids. That takes
0.1 µs for each member of an aggregate and for each provider with a trait or a resource class, and ends with
the last root that is needed; a scan that fails takes 3 to 20 µs for each root.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, CompoundSelect, FromClause, Select, except_, intersect, select, union

from placement_svc.db.filters import has_free_amount, has_traits, is_any
from placement_svc.db.search.criteria import ResolvedMembership, SearchCriteria, SupplierCriteria
from placement_svc.db.search.sharing import SharedSupplies, aggregates_serving_required
from placement_svc.db.search.tree_conditions import is_after_cursor, sharing_aggregates
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, provider_aggregates, provider_traits, resource_providers

MAX_SETS = 8
"""The most sets that a search intersects, small ones first, and the most that it excludes."""

MAX_SETS_OF_SUPPLIER = 4
"""The most sets of traits that are required of a supplier, and the most single traits that it must not have.

Each name is a query that PostgreSQL plans, so there are at most 8 * (4 * 8 + 4) for suppliers.
"""

MAX_ORDERED_NAMES = 8
"""The most traits or aggregates in a set whose roots PostgreSQL merges in their order."""


class SetSize(Enum):
    """Which sets a strategy uses: only small ones; also large ones that an index has in order; or all."""

    SMALL = auto()
    SMALL_OR_ORDERED = auto()
    ANY = auto()


class _RootSet(NamedTuple):
    """A set of roots: a function that returns its query, and how many roots it has if it is small.

    If a set suffices, no large one is used with it (`SearchCriteria`). `reads_class` means that the query
    reads all inventories of a resource class.
    """

    select: Callable[[], Select[int]]
    size: int | None = None
    suffices: bool = False
    reads_class: bool = False


_member_of = shared(provider_aggregates.alias("member_of"))
_held = shared(provider_traits.alias("held"))
_inventory = shared(inventories.alias("inventory"))
_provider = shared(resource_providers.alias("provider"))

_IS_ROOT_MEMBER = _member_of.c.provider_id == _member_of.c.root_id
_IS_ROOT_TRAIT = _held.c.provider_id == _held.c.root_id


def roots_in_sets(
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    size: SetSize,
    *,
    continues: bool = False,
    merges_sets: bool = True,
    uses_amounts: bool = False,
) -> FromClause | None:
    """Return the roots in all sets of a size, with the column `root_id` in ascending order.

    Return None if there is no set. With `continues`, return only those behind the cursor, whose position is a
    root id (`is_after_cursor`). `merges_sets` tells whether the server reads ordered sets side by side. An
    older one reads and sorts whole sets, so it gets no large set of traits, which all hosts may have. With
    `uses_amounts`, the sets also have the providers with the amounts of the demands, and those of each class
    without the traits that the unsuffixed group forbids, not only of `holder_classes`.
    """
    trait_size = SetSize.SMALL if size is SetSize.SMALL_OR_ORDERED and not merges_sets else size
    # Most hosts have the traits of many sets, so aggregates exclude more.
    all_sets = chain(
        _aggregate_sets(criteria, shared_supplies, size),
        _trait_sets(criteria, shared_supplies, trait_size, all_classes=uses_amounts),
        _amount_sets(criteria, shared_supplies, size) if uses_amounts else (),
    )
    small_first = sorted(all_sets, key=lambda each: each.size is None)
    uses_large = not any(each.suffices for each in small_first)
    used = [each for each in small_first if each.size is not None or uses_large]
    sets: list[Select[Any]] = [each.select() for each in used[:MAX_SETS]]
    excludes = uses_large and trait_size is not SetSize.SMALL
    excluded = list(islice(_excluded_sets(criteria), MAX_SETS)) if excludes else []
    if not sets:
        if not excluded or size is not SetSize.SMALL_OR_ORDERED:
            return None
        sets = [select(_provider.c.id.label("root_id")).where(_provider.c.parent_id.is_(None))]
    if continues:
        sets, excluded = (
            [each.where(is_after_cursor(each.selected_columns.root_id)) for each in part]
            for part in (sets, excluded)
        )
    roots: Select[Any] | CompoundSelect[Any] = (
        intersect(*sets) if len(sets) > 1 else sets[0] if excluded else sets[0].distinct()
    )
    if excluded:
        roots = except_(roots, *excluded)
    # The OFFSET makes PostgreSQL read the sets in order, instead of probing them root by root.
    return roots.order_by("root_id").offset(0).subquery("roots_in_sets")


def has_small_set(criteria: SearchCriteria, shared_supplies: SharedSupplies) -> bool:
    """Return whether roots must be in a small set: all its roots are best examined at once."""
    size = SetSize.SMALL
    return any(
        chain(_aggregate_sets(criteria, shared_supplies, size), _trait_sets(criteria, shared_supplies, size))
    )


class SetFacts(NamedTuple):
    """How many sets a search has, how large the smallest one is, and how many read a whole class.

    The size is None if no set is small. `amount_count` is the number of sets of amounts, which are not
    counted among the others; each reads a class.
    """

    set_count: int
    least_size: int | None
    class_reads: int
    amount_count: int


def facts_about_sets(criteria: SearchCriteria, shared_supplies: SharedSupplies) -> SetFacts:
    """Return what is known about the sets of a search, of any size, before they are read."""
    sets = [
        *_aggregate_sets(criteria, shared_supplies, SetSize.ANY),
        *_trait_sets(criteria, shared_supplies, SetSize.ANY),
    ]
    least_size = min((each.size for each in sets if each.size is not None), default=None)
    amount_count = sum(1 for _ in _amount_sets(criteria, shared_supplies, SetSize.ANY))
    return SetFacts(len(sets), least_size, sum(each.reads_class for each in sets), amount_count)


def _aggregate_sets(
    criteria: SearchCriteria, shared_supplies: SharedSupplies, size: SetSize
) -> Iterator[_RootSet]:
    """Yield the roots of the members of each set of aggregates that a demand requires.

    First yield the roots that are members themselves, for each set of `root_member_of`.
    """
    root_sets = dict.fromkeys(criteria.root_member_of.any_of)
    supplier_sets = _required_aggregates(criteria, shared_supplies)
    for any_of, conditions in chain(
        ((each, [_IS_ROOT_MEMBER]) for each in root_sets), ((each, []) for each in supplier_sets)
    ):
        set_size = criteria.aggregate_set_size(any_of)
        if set_size is not None or _is_used(any_of, size):
            suffices = any_of in criteria.sufficient_aggregate_sets
            yield _RootSet(partial(_select_members, any_of, *conditions), set_size, suffices)


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
    criteria: SearchCriteria, shared_supplies: SharedSupplies, size: SetSize, *, all_classes: bool = False
) -> Iterator[_RootSet]:
    """Yield the roots of the providers with the traits that each group requires, without those it forbids.

    First yield the roots with the traits that `root_required` requires. In the unsuffixed group, each trait
    that is required makes a set, and sharing providers can have it. Of its classes, only `holder_classes`
    make sets without the forbidden traits, unless `all_classes`: on most clouds, one provider has them all.
    """
    required = criteria.root_required.any_of
    set_size = _least_size(criteria, required)
    if set_size is None:
        if used := [any_of for any_of in required if _is_used(any_of, size)]:
            part = used[:MAX_SETS_OF_SUPPLIER]
            yield _RootSet(partial(_select_roots_of_holders, part, _IS_ROOT_TRAIT))
    else:
        is_root = _provider.c.parent_id.is_(None)
        suffices = not criteria.sufficient_trait_sets.isdisjoint(required)
        yield _RootSet(
            partial(_select_with_traits, criteria.root_required, is_root), set_size, suffices=suffices
        )
    for each in dict.fromkeys(criteria.by_demand):
        is_used = all_classes or not each.is_unsuffixed or each.resources[0][0] in criteria.holder_classes
        if is_used and each not in shared_supplies:
            yield from _supplier_set(criteria, each, size)
    for any_of in criteria.rules.unsuffixed_required:
        aggregate_ids = aggregates_serving_required(shared_supplies, any_of)
        set_size = criteria.trait_set_size(any_of)
        if not aggregate_ids:
            if set_size is not None or _is_used(any_of, size):
                suffices = any_of in criteria.sufficient_trait_sets
                yield _RootSet(partial(_select_roots_of_holders, [any_of]), set_size, suffices)
        elif set_size is not None or _is_used([*any_of, *aggregate_ids], size):
            yield _RootSet(partial(_select_holders_or_members, any_of, aggregate_ids), set_size)


def _amount_sets(
    criteria: SearchCriteria, shared_supplies: SharedSupplies, size: SetSize
) -> Iterator[_RootSet]:
    """Yield the roots of the providers with the amounts, and the traits, that each demand requires.

    The members of aggregates through which sharing providers supply a demand are in its set as well. The
    traits are sets by themselves too. Here they exclude trees in which one provider has the traits and
    another one the amounts.
    """
    for each in dict.fromkeys(criteria.by_demand):
        aggregate_ids = sharing_aggregates(shared_supplies, each)
        # Ignored consumers can give an inventory amounts that its index entry does not have.
        if each.resources and not each.added and _is_used(aggregate_ids, size):
            yield _RootSet(partial(_select_able_or_served, each, aggregate_ids))


def _least_size(criteria: SearchCriteria, sets: Iterable[frozenset[int]]) -> int | None:
    """Return the size of the smallest of these sets of traits; None if none is small."""
    sizes = (criteria.trait_set_size(any_of) for any_of in sets)
    return min((size for size in sizes if size is not None), default=None)


def _supplier_set(
    criteria: SearchCriteria, supplier_criteria: SupplierCriteria, size: SetSize
) -> Iterator[_RootSet]:
    """Yield the roots of the providers that have the traits required of a supplier, and no forbidden one.

    If only forbidden traits can exclude providers, start from those with the resource class.
    """
    required, forbidden = supplier_criteria.required.any_of, supplier_criteria.required.forbidden
    set_size = _least_size(criteria, required)
    if set_size is not None:
        suffices = not criteria.sufficient_trait_sets.isdisjoint(required)
        yield _RootSet(partial(_select_with_traits, supplier_criteria.required), set_size, suffices)
        return
    if size is SetSize.SMALL:
        return
    used = [any_of for any_of in required if _is_used(any_of, size)][:MAX_SETS_OF_SUPPLIER]
    excluded = [frozenset([id_]) for id_ in _without_small_set(criteria, forbidden)[:MAX_SETS_OF_SUPPLIER]]
    if used and not excluded:
        yield _RootSet(partial(_select_roots_of_holders, used))
    elif excluded and (used or supplier_criteria.resources):
        class_id = None if used else supplier_criteria.resources[0][0]
        reads_class = class_id is not None
        yield _RootSet(partial(_select_allowed, class_id, used, excluded), reads_class=reads_class)


def _excluded_sets(criteria: SearchCriteria) -> Iterator[Select[int]]:
    """Yield the roots that have a frequent forbidden trait, and the members of a forbidden aggregate."""
    for trait_id in _without_small_set(criteria, criteria.root_required.forbidden):
        yield select(_held.c.root_id).where(_held.c.trait_id == trait_id, _IS_ROOT_TRAIT)
    for aggregate_id in sorted(criteria.unsuffixed_forbidden_aggregates | criteria.root_member_of.forbidden):
        if frozenset([aggregate_id]) not in criteria.small_aggregate_sets:
            yield _select_members([aggregate_id], _IS_ROOT_MEMBER)


def _without_small_set(criteria: SearchCriteria, trait_ids: Iterable[int]) -> list[int]:
    """Return the traits that make no small set; a scan excludes the few providers with another one."""
    return [id_ for id_ in sorted(trait_ids) if frozenset([id_]) not in criteria.small_trait_sets]


def _is_used(any_of: Collection[int], size: SetSize) -> bool:
    """Return whether a strategy uses a large set; indexes have the roots of a few names in their order."""
    return size is SetSize.ANY or (size is SetSize.SMALL_OR_ORDERED and len(any_of) <= MAX_ORDERED_NAMES)


def _select_any(query: Select[Any], name_id: ColumnElement[int], ids: Collection[int]) -> Select[Any]:
    """Return the rows of `query` for one of the names with these ids.

    An index has the rows of one name in the order of their roots. PostgreSQL merges those of a few.
    """
    if len(ids) == 1:
        return query.where(name_id == min(ids))
    if not ids or len(ids) > MAX_ORDERED_NAMES:
        return query.where(is_any(name_id, ids))
    names = [column.name for column in query.selected_columns]
    merged = union(*(query.where(name_id == id_) for id_ in sorted(ids))).order_by(*names).subquery()
    return select(merged)


def _select_members(any_of: Collection[int], *conditions: ColumnElement[bool]) -> Select[int]:
    """Return the query for the roots of the members of one of these aggregates."""
    return _select_any(select(_member_of.c.root_id).where(*conditions), _member_of.c.aggregate_id, any_of)


def _select_holders_or_members(any_of: frozenset[int], aggregate_ids: Collection[int]) -> Select[int]:
    """Return the query for the roots of the providers with a trait, or in an aggregate."""
    return _with_members(_select_roots_of_holders([any_of]), aggregate_ids)


def _with_members(roots: Select[int], aggregate_ids: Collection[int]) -> Select[int]:
    """Return the query for some roots, and those of the members of one of these aggregates."""
    return select(union(roots, _select_members(aggregate_ids)).order_by("root_id").subquery())


def _select_with_traits(required: ResolvedMembership, *conditions: ColumnElement[bool]) -> Select[int]:
    """Return the query for the roots of the providers with few required traits, and no forbidden one."""
    has_all = has_traits(_provider, required.any_of, required.forbidden)
    return select(_provider.c.root_id).where(*conditions, *has_all)


def _select_allowed(
    class_id: int | None, used: Sequence[frozenset[int]], excluded: Sequence[frozenset[int]]
) -> Select[int]:
    """Return the query for the roots of providers with a class, or with used traits, but no excluded one."""
    if class_id is None:
        providers = _select_holders(used)
    else:
        providers = _select_with_inventory(_inventory.c.resource_class_id == class_id)
    allowed = except_(providers, *(_select_holders([each]) for each in excluded))
    return select(allowed.order_by("root_id", "provider_id").subquery().c.root_id)


def _select_roots_of_holders(sets: Sequence[frozenset[int]], *conditions: ColumnElement[bool]) -> Select[int]:
    """Return the query for the roots of the providers that have a trait of each set."""
    if len(sets) == 1:
        return _select_any(select(_held.c.root_id).where(*conditions), _held.c.trait_id, sets[0])
    return select(_select_holders(sets, *conditions).subquery().c.root_id)


def _select_holders(sets: Sequence[frozenset[int]], *conditions: ColumnElement[bool]) -> Select[int, int]:
    """Return the query for the providers that have a trait of each set, and the roots of their trees."""
    holders = select(_held.c.root_id, _held.c.provider_id).where(*conditions)
    parts = [_select_any(holders, _held.c.trait_id, any_of) for any_of in sets]
    if len(parts) == 1:
        return parts[0]
    return select(intersect(*parts).order_by("root_id", "provider_id").subquery())


def _select_able_or_served(criteria: SupplierCriteria, aggregate_ids: Collection[int]) -> Select[int]:
    """Return the query for the roots of suppliers, and for those of the members of these aggregates."""
    return _with_members(_select_able(criteria), aggregate_ids) if aggregate_ids else _select_able(criteria)


def _select_able(criteria: SupplierCriteria) -> Select[int]:
    """Return the query for the roots of the providers with the amounts and traits of a demand.

    It has the first `MAX_SETS_OF_SUPPLIER` amounts and sets of traits that are required.
    """
    amounts = [
        _select_with_inventory(has_free_amount(_inventory, class_id, amount))
        for class_id, amount in criteria.resources[:MAX_SETS_OF_SUPPLIER]
    ]
    used = [any_of for any_of in criteria.required.any_of if len(any_of) <= MAX_ORDERED_NAMES]
    holders = [_select_holders([any_of]) for any_of in used[:MAX_SETS_OF_SUPPLIER]]
    parts = [*holders, *amounts]
    if len(parts) == 1:
        return parts[0].with_only_columns(parts[0].selected_columns.root_id)
    return select(intersect(*parts).order_by("root_id", "provider_id").subquery().c.root_id)


def _select_with_inventory(condition: ColumnElement[bool]) -> Select[int, int]:
    """Return the query for the providers of the inventories that meet a condition, and their roots."""
    return select(_inventory.c.root_id, _inventory.c.provider_id).where(condition)
