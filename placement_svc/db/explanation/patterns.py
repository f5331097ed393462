"""The patterns of providers: one bit for each condition of a request, computed in SQL.

One statement reads each inventory of the requested classes and each provider of the covered roots once. It
returns one row for each distinct combination of patterns around a root; these are few, as hosts are alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from placement_svc.db.filters import has_traits, in_any_aggregate, is_any
from placement_svc.db.tables import inventories, provider_aggregates, resource_providers
from placement_svc.domain.errors import NotFound
from placement_svc.domain.explanation import (
    AggregateCondition,
    AmountCondition,
    Condition,
    FilterCode,
    TraitCondition,
    TreeCondition,
)
from placement_svc.domain.inventory import MAX_CAPACITY, MAX_INTEGER
from placement_svc.domain.memory import MemoryBudget
from placement_svc.domain.root_tests import Bits, RootPattern

WORD_BITS = 60
"""The conditions for which one bigint of a pattern has bits."""

provider_row = resource_providers.alias("provider")
"""The providers in `select_patterns`."""

ROOT_SIZE = 50
"""Bytes of memory that the id of a root needs, approximately."""

PATTERN_SIZE = 150
"""Bytes of memory that a pattern around a root needs besides its bits, approximately."""

_inventory = inventories.alias("inventory")
_root = resource_providers.alias("root")


def number_conditions(conditions: Iterable[Condition]) -> Bits:
    """Return the number of the bit of each distinct condition."""
    return {condition: number for number, condition in enumerate(dict.fromkeys(conditions))}


@dataclass(frozen=True)
class Scope:
    """The roots that an explanation covers: one root, or the first `max_roots` in the order of uuids."""

    root_id: int | None
    max_roots: int

    def root_ids(self) -> Select[int]:
        """Return the query for the ids of the covered roots."""
        query = select(_root.c.id).where(_root.c.parent_id.is_(None))
        if self.root_id is not None:
            return query.where(_root.c.id == self.root_id)
        return query.order_by(_root.c.uuid).limit(self.max_roots)


class NamedRoot(NamedTuple):
    """A root provider by id, uuid and name."""

    id: int
    uuid: str
    name: str


def find_root(connection: Connection, provider: str) -> NamedRoot:
    """Return the root of the provider with this uuid, or else with this name; raises `NotFound`."""
    found = (
        select(_root.c.id, _root.c.uuid, _root.c.name)
        .join(provider_row, provider_row.c.root_id == _root.c.id)
        .where((provider_row.c.uuid == provider) | (provider_row.c.name == provider))
        .order_by((provider_row.c.uuid == provider).desc())
        .limit(1)
    )
    row = connection.execute(found).first()
    if row is None:
        raise NotFound(f"No resource provider with uuid or name {provider} found")
    return NamedRoot(*row)


def has_more_roots(connection: Connection, scope: Scope) -> bool:
    """Return whether the cloud has more roots than those that the scope covers."""
    if scope.root_id is not None:
        return False
    beyond = select(_root.c.id).where(_root.c.parent_id.is_(None)).offset(scope.max_roots).limit(1)
    return connection.execute(beyond).first() is not None


class SharingProvider(NamedTuple):
    """A sharing provider that is in some aggregate."""

    id: int
    root_id: int
    pattern: int
    aggregate_ids: frozenset[int]


@dataclass(frozen=True)
class RootGroup:
    """The roots with equal patterns around them, and with the same aggregates of sharing providers."""

    pattern: RootPattern
    aggregate_ids: frozenset[int]
    root_ids: tuple[int, ...]


@dataclass(frozen=True)
class Cloud:
    """The covered roots by their patterns, and the sharing providers."""

    scope: Scope
    bits: Bits
    roots: tuple[RootGroup, ...]
    sharing: tuple[SharingProvider, ...]

    @property
    def serving(self) -> list[SharingProvider]:
        """The sharing providers that serve a covered root."""
        served = frozenset[int]().union(*(root.aggregate_ids for root in self.roots))
        return [provider for provider in self.sharing if provider.aggregate_ids & served]


def read_cloud(
    connection: Connection,
    bits: Bits,
    sharing_trait_id: int | None,
    scope: Scope,
    memory: MemoryBudget,
) -> Cloud:
    """Return the patterns of all covered roots: one statement, and one more if any provider shares."""
    sharing = _read_sharing(connection, bits, sharing_trait_id)
    masks_by_aggregate: dict[int, set[int]] = {}
    for provider in sharing:
        for aggregate_id in provider.aggregate_ids:
            masks_by_aggregate.setdefault(aggregate_id, set()).add(provider.pattern)
    rows = connection.execute(_select_roots(bits, scope, sorted(masks_by_aggregate)))
    masks: dict[Any, int] = {}
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    roots = []
    for root_pattern, patterns, aggregate_ids, root_ids in rows:
        key = tuple(aggregate_ids)
        memory.reserve(ROOT_SIZE * len(root_ids) + PATTERN_SIZE * (len(patterns) + len(key)))
        if key not in shared:
            shared[key] = tuple(sorted(set().union(*map(masks_by_aggregate.__getitem__, key))))
            memory.reserve(PATTERN_SIZE * len(shared[key]))
        for pattern in patterns:
            if pattern not in masks:
                memory.reserve(PATTERN_SIZE + len(bits))
                masks[pattern] = read_pattern(pattern)
        own = tuple(masks[pattern] for pattern in patterns)
        pattern = RootPattern(masks[root_pattern], own, shared[key])
        roots.append(RootGroup(pattern, frozenset(key), tuple(root_ids)))
    return Cloud(scope, bits, tuple(roots), tuple(sharing))


def read_pattern(value: int | str) -> int:
    """Return the bits in a value of the column `pattern`."""
    words = [value] if isinstance(value, int) else map(int, value.split(","))
    return sum(word << (WORD_BITS * number) for number, word in enumerate(words))


def select_patterns(bits: Bits) -> Select[Any]:
    """Return the query for `provider_id`, `root_id` and `pattern` of all providers.

    The inventories are read as a whole and aggregated by provider: an index scan for each provider costs
    more, because every one is needed.
    """
    word_count = max(1, -(-len(bits) // WORD_BITS))
    by_word: list[dict[Condition, int]] = [{} for _ in range(word_count)]
    for condition, bit in bits.items():
        by_word[bit // WORD_BITS][condition] = bit % WORD_BITS
    class_ids = {each.class_id for each in bits if isinstance(each, AmountCondition)}
    amounts = (
        select(
            _inventory.c.provider_id,
            *(
                func.bit_or(_word(_amount_conditions(word))).label(f"word_{number}")
                for number, word in enumerate(by_word)
            ),
        )
        .where(is_any(_inventory.c.resource_class_id, class_ids))
        .group_by(_inventory.c.provider_id)
        .subquery("amounts")
    )
    words = [
        _word(_provider_conditions(word)) + func.coalesce(amounts.c[f"word_{number}"], 0)
        for number, word in enumerate(by_word)
    ]
    pattern: ColumnElement[Any] = words[0] if word_count == 1 else func.concat_ws(",", *words)
    return select(
        provider_row.c.id.label("provider_id"), provider_row.c.root_id, pattern.label("pattern")
    ).select_from(provider_row.outerjoin(amounts, amounts.c.provider_id == provider_row.c.id))


def _word(conditions: Mapping[int, ColumnElement[bool]]) -> ColumnElement[int]:
    parts = [
        case((condition, literal(1 << bit, BigInteger)), else_=literal(0, BigInteger))
        for bit, condition in conditions.items()
    ]
    return cast(sum(parts, start=literal(0, BigInteger)), BigInteger)


def _amount_conditions(word: Mapping[Condition, int]) -> dict[int, ColumnElement[bool]]:
    return {
        bit: and_(_inventory.c.resource_class_id == each.class_id, passes_amount(_inventory, each))
        for each, bit in word.items()
        if isinstance(each, AmountCondition)
    }


def passes_amount(inventory: FromClause, condition: AmountCondition) -> ColumnElement[bool]:
    """Return the condition that an inventory of the class passes one of the filters on amounts."""
    if condition.code is FilterCode.INVENTORY:
        return true()
    amount = condition.amount
    columns = inventory.c
    if condition.code is FilterCode.UNIT:
        if amount > MAX_INTEGER:
            return false()
        return func.fits_units(amount, columns.min_unit, columns.max_unit, columns.step_size)
    if amount > MAX_CAPACITY:
        return false()
    limit = literal(amount, BigInteger)
    if condition.code is FilterCode.CAPACITY:
        return columns.capacity >= limit
    return columns.capacity - columns.used >= limit


def _provider_conditions(word: Mapping[Condition, int]) -> dict[int, ColumnElement[bool]]:
    return {bit: _of_provider(each) for each, bit in word.items() if not isinstance(each, AmountCondition)}


def _of_provider(condition: TraitCondition | AggregateCondition | TreeCondition) -> ColumnElement[bool]:
    if isinstance(condition, TreeCondition):
        return provider_row.c.root_id == condition.root_id
    if isinstance(condition, AggregateCondition):
        is_member = in_any_aggregate(provider_row.c.id, condition.ids)
        return ~is_member if condition.forbidden else is_member
    any_of, forbidden = ([], condition.ids) if condition.forbidden else ([condition.ids], ())
    return and_(true(), *has_traits(provider_row, any_of, forbidden))


def _select_roots(bits: Bits, scope: Scope, aggregate_ids: Sequence[int]) -> Select[Any]:
    covered = scope.root_ids().cte("covered").prefix_with("MATERIALIZED")
    patterns = (
        select_patterns(bits).join(covered, covered.c.id == provider_row.c.root_id).subquery("patterns")
    )
    is_root = patterns.c.provider_id == patterns.c.root_id
    by_root = (
        select(
            patterns.c.root_id,
            func.max(case((is_root, patterns.c.pattern))).label("root_pattern"),
            func.array_agg(aggregate_order_by(patterns.c.pattern.distinct(), patterns.c.pattern)).label(
                "patterns"
            ),
        )
        .group_by(patterns.c.root_id)
        .subquery("by_root")
    )
    aggregates: ColumnElement[Any] = cast(literal("{}"), ARRAY(Integer))
    if aggregate_ids:
        aggregates = func.array(
            select(provider_aggregates.c.aggregate_id)
            .where(
                provider_aggregates.c.root_id == by_root.c.root_id,
                is_any(provider_aggregates.c.aggregate_id, aggregate_ids),
            )
            .distinct()
            .order_by(provider_aggregates.c.aggregate_id)
            .scalar_subquery()
        )
    with_aggregates = select(by_root, aggregates.label("aggregate_ids")).subquery("with_aggregates")
    key = [with_aggregates.c[name] for name in ("root_pattern", "patterns", "aggregate_ids")]
    return select(*key, func.array_agg(with_aggregates.c.root_id)).group_by(*key)


def _read_sharing(connection: Connection, bits: Bits, sharing_trait_id: int | None) -> list[SharingProvider]:
    if sharing_trait_id is None:
        return []
    query = (
        select_patterns(bits)
        .add_columns(
            select(func.array_agg(provider_aggregates.c.aggregate_id))
            .where(provider_aggregates.c.provider_id == provider_row.c.id)
            .scalar_subquery()
            .label("aggregate_ids")
        )
        .where(provider_row.c.trait_ids.contains([sharing_trait_id]))
    )
    return [
        SharingProvider(provider_id, root_id, read_pattern(pattern), frozenset(aggregate_ids))
        for provider_id, root_id, pattern, aggregate_ids in connection.execute(query)
        if aggregate_ids
    ]
