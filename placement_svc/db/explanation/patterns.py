"""The patterns of providers: one bit for each condition of a request, computed in SQL.

`placement_svc.domain.explanation.root_tests` evaluates them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    Text,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    literal_column,
    not_,
    select,
    true,
)
from sqlalchemy.types import TypeEngine

from placement_svc.db.arrays import join_texts
from placement_svc.db.filters import (
    free_amount,
    has_traits,
    in_any_aggregate,
    is_any,
    least_amount,
)
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.explanation.filters import (
    AggregateCondition,
    AmountCondition,
    Condition,
    FilterCode,
    TraitCondition,
    TreeCondition,
)
from placement_svc.domain.explanation.supplier_tests import Bits
from placement_svc.domain.inventory import ANY_PART, MAX_CAPACITY, MAX_INTEGER

WORD_BITS = 60
"""The conditions for which one bigint of a pattern has bits."""

_ZERO: ColumnElement[int] = literal_column("0", BigInteger)

_BITS: list[ColumnElement[int]] = [literal_column(str(1 << bit), BigInteger) for bit in range(WORD_BITS)]
"""The value of each bit. As parameters, these would double the time to build and compile a statement."""

provider_row = shared(resource_providers.alias("provider"))
"""The providers in `select_patterns`."""

inventory_row = shared(inventories.alias("inventory"))
"""The inventories in `select_patterns`."""


def number_conditions(conditions: Iterable[Condition]) -> Bits:
    """Return the number of the bit of each distinct condition."""
    return {condition: number for number, condition in enumerate(dict.fromkeys(conditions))}


def read_pattern(value: int | str) -> int:
    """Return the bits in a value of the column `pattern`."""
    words = [value] if isinstance(value, int) else map(int, value.split(","))
    return sum(word << (WORD_BITS * number) for number, word in enumerate(words))


def write_pattern(pattern: int, bits: Bits) -> str:
    """Return the value of the column `pattern` as text, for these bits."""
    words = range(_word_count(bits))
    return ",".join(str(pattern >> (WORD_BITS * number) & (1 << WORD_BITS) - 1) for number in words)


def pattern_type(bits: Bits) -> TypeEngine[Any]:
    """Return the type of the column `pattern` for these bits."""
    return BigInteger() if _word_count(bits) == 1 else Text()


def _word_count(bits: Bits) -> int:
    return max(1, -(-len(bits) // WORD_BITS))


def select_patterns(
    bits: Bits,
    inventories_of: ColumnElement[bool],
    amounts: Mapping[str, ColumnElement[int]] = MappingProxyType({}),
) -> Select[Any]:
    """Return the query for `provider_id`, `root_id` and `pattern` of all providers.

    `inventories_of` is a condition on `inventory_row` that the inventories of all these providers meet.
    `amounts` are aggregates of `inventory_row`, by the names of further columns, which are 0 without a value.

    The inventories are read as a whole and aggregated by provider: an index scan for each provider costs
    more, because every one is needed.
    """
    word_count = _word_count(bits)
    by_word: list[dict[Condition, int]] = [{} for _ in range(word_count)]
    for condition, bit in bits.items():
        by_word[bit // WORD_BITS][condition] = bit % WORD_BITS
    class_ids = {each.class_id for each in bits if isinstance(each, AmountCondition)}
    by_provider = (
        select(
            inventory_row.c.provider_id,
            *(func.bit_or(_amount_word(word)).label(f"word_{number}") for number, word in enumerate(by_word)),
            *(column.label(name) for name, column in amounts.items()),
        )
        .where(is_any(inventory_row.c.resource_class_id, class_ids), inventories_of)
        .group_by(inventory_row.c.provider_id)
        .subquery("by_provider")
    )
    words = [
        _word(_provider_conditions(word)) + func.coalesce(by_provider.c[f"word_{number}"], 0)
        for number, word in enumerate(by_word)
    ]
    pattern: ColumnElement[Any] = words[0] if word_count == 1 else join_texts(",", words)
    return select(
        provider_row.c.id.label("provider_id"),
        provider_row.c.root_id,
        pattern.label("pattern"),
        *(func.coalesce(by_provider.c[name], 0).label(name) for name in amounts),
    ).select_from(provider_row.outerjoin(by_provider, by_provider.c.provider_id == provider_row.c.id))


def select_free(patterns: Select[Any], class_ids: Collection[int], key: Sequence[str] = ()) -> Select[Any]:
    """Return the query for what is free of these classes, by the patterns of the root and of the provider.

    `patterns` is a query of `select_patterns`, with further columns `key` by which the amounts are separate.
    Each row has both patterns, the values of these columns, the id of the class, and the amount.
    """
    provider = patterns.cte("patterns").prefix_with("MATERIALIZED")
    root = provider.alias("of_root")
    columns = (
        root.c.pattern,
        provider.c.pattern,
        *(provider.c[name] for name in key),
        inventories.c.resource_class_id,
    )
    return (
        select(*columns, func.sum(func.greatest(free_amount(inventories), 0)))
        .select_from(provider)
        .join(root, root.c.provider_id == provider.c.root_id)
        .join(inventories, inventories.c.provider_id == provider.c.provider_id)
        .where(is_any(inventories.c.resource_class_id, class_ids))
        .group_by(*columns)
    )


def _word(conditions: Mapping[int, ColumnElement[bool]]) -> ColumnElement[int]:
    parts = (case((condition, _BITS[bit]), else_=_ZERO) for bit, condition in conditions.items())
    return cast(sum(parts, start=_ZERO), BigInteger)


def _amount_word(word: Mapping[Condition, int]) -> ColumnElement[int]:
    """Return the bits of an inventory; only the conditions on its own class are evaluated."""
    by_class: dict[int, dict[int, ColumnElement[bool]]] = {}
    for each, bit in word.items():
        if isinstance(each, AmountCondition):
            by_class.setdefault(each.class_id, {})[bit] = passes_amount(inventory_row, each)
    words = {class_id: _word(conditions) for class_id, conditions in by_class.items()}
    return case(words, value=inventory_row.c.resource_class_id, else_=_ZERO) if words else _ZERO


def passes_amount(inventory: FromClause, condition: AmountCondition) -> ColumnElement[bool]:
    """Return the condition that an inventory of the class passes one of the filters on amounts."""
    if condition.code is FilterCode.INVENTORY:
        return true()
    amount = condition.amount
    columns = inventory.c
    if amount == ANY_PART:
        return _passes_part(inventory, condition.code)
    if condition.code is FilterCode.UNIT:
        if amount > MAX_INTEGER:
            return false()
        return func.fits_units(amount, columns.min_unit, columns.max_unit, columns.step_size)
    if amount > MAX_CAPACITY:
        return false()
    limit = literal(amount, BigInteger)
    if condition.code is FilterCode.CAPACITY:
        return columns.capacity >= limit
    return free_amount(inventory) >= limit


def _passes_part(inventory: FromClause, code: FilterCode) -> ColumnElement[bool]:
    """Return the condition that an inventory passes a filter on amounts for some amount."""
    columns = inventory.c
    limits = {
        FilterCode.UNIT: columns.max_unit,
        FilterCode.CAPACITY: columns.capacity,
        FilterCode.FREE: free_amount(inventory),
    }
    return limits[code] >= least_amount(inventory)


def _provider_conditions(word: Mapping[Condition, int]) -> dict[int, ColumnElement[bool]]:
    return {bit: _of_provider(each) for each, bit in word.items() if not isinstance(each, AmountCondition)}


def _of_provider(condition: TraitCondition | AggregateCondition | TreeCondition) -> ColumnElement[bool]:
    if isinstance(condition, TreeCondition):
        root_id = provider_row.c.root_id
        is_required = true() if condition.root_id is None else root_id == condition.root_id
        return and_(is_required, not_(is_any(root_id, condition.excluded)))
    if isinstance(condition, AggregateCondition):
        is_member = in_any_aggregate(provider_row.c.id, condition.ids)
        return ~is_member if condition.forbidden else is_member
    any_of, forbidden = ([], condition.ids) if condition.forbidden else ([condition.ids], ())
    return and_(true(), *has_traits(provider_row, any_of, forbidden))
