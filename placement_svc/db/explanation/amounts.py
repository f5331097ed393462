"""The amounts that failing inventories could supply: `best` and `sum_free` of an explanation."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Boolean, ColumnElement, Integer, column, func, literal, not_, or_, select
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.explanation.cloud import Cloud
from placement_svc.db.filters import free_amount, is_any
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.db.tables import inventories
from placement_svc.domain.explanation.filters import AmountCondition, Filter, FilterCode, GroupFilters
from placement_svc.domain.inventory import MAX_CAPACITY, UnitLimits


class _Failing(NamedTuple):
    """The amounts of those inventories of a class that fail a filter, None if none fails."""

    best_capacity: int | None = None
    best_free: int | None = None
    sum_free: int | None = None

    def merged(self, other: "_Failing") -> "_Failing":
        """Return the amounts of these inventories and of others."""
        capacities, free, sums = (
            [int(each) for each in pair if each is not None] for pair in zip(self, other, strict=True)
        )
        return _Failing(max(capacities, default=None), max(free, default=None), sum(sums) if sums else None)


class FilterAmounts:
    """The amounts that inventories of the requested classes could supply, for the filters on amounts."""

    def __init__(
        self, failing: Mapping[tuple[int, int], _Failing], units: Mapping[int, Collection[UnitLimits]]
    ) -> None:
        self._failing = failing
        self._units = units

    def members(self, each: Filter) -> dict[str, int | None]:
        """Return the members `wanted`, `best` and `sum_free` of a filter, those that it has."""
        condition = each.condition
        if not isinstance(condition, AmountCondition) or condition.code is FilterCode.INVENTORY:
            return {}
        if condition.code is FilterCode.UNIT:
            best = nearest_allowed(condition.amount, self._units.get(condition.class_id, ()))
            return {"wanted": each.wanted, "best": best}
        failing = self._failing.get((condition.class_id, _bounded(condition.amount)), _Failing())
        if condition.code is FilterCode.CAPACITY:
            return {"wanted": each.wanted, "best": failing.best_capacity}
        return {"wanted": each.wanted, "best": failing.best_free, "sum_free": failing.sum_free}


def nearest_allowed(amount: int, units_of_class: Iterable[UnitLimits]) -> int | None:
    """Return the allowed amount nearest to `amount` among units that do not allow it; None if none is.

    The smaller one counts if two are equally near.
    """
    allowed = [
        each for units in units_of_class if not units.fits_units(amount) for each in _nearest(amount, units)
    ]
    return min(allowed, key=lambda each: (abs(each - amount), each), default=None)


def _nearest(amount: int, units: UnitLimits) -> list[int]:
    """Return the nearest amounts on both sides that the units of an inventory allow."""
    step_size = units.step_size
    largest = units.max_unit // step_size * step_size
    if units.least > largest:
        return []
    below = amount // step_size * step_size
    return [min(max(each, units.least), largest) for each in (below, below + step_size)]


def _bounded(amount: int) -> int:
    """Return the amount, or one above every capacity that a bigint can hold."""
    return min(amount, MAX_CAPACITY + 1)


def read_amounts(reader: InventoryReader, cloud: Cloud, groups: Iterable[GroupFilters]) -> FilterAmounts:
    """Return the amounts of the covered providers: one statement, or none if no inventory fails a filter.

    It reads the inventories of the classes with such inventories as a whole, as the pass over the cloud does,
    and returns one row for each amount and each combination of units.
    """
    requested = sorted(set(_failing_amounts(cloud, groups)))
    if not requested:
        return FilterAmounts({}, {})
    in_scope: ColumnElement[bool] = cloud.scope.covers(inventories.c.root_id)
    if serving := [provider.id for provider in cloud.serving]:
        in_scope = or_(in_scope, is_any(inventories.c.provider_id, serving))
    wanted = (
        func.unnest(
            literal([class_id for class_id, _ in requested], ARRAY(Integer)),
            literal([amount for _, amount in requested], ARRAY(BigInteger)),
        )
        .table_valued(column("class_id", Integer), column("amount", BigInteger))
        .render_derived("wanted")
    )
    free = free_amount(inventories)
    exceeds_capacity, exceeds_free = inventories.c.capacity < wanted.c.amount, free < wanted.c.amount
    units_of_inventory = [inventories.c[name] for name in UnitLimits._fields]
    # An amount that exceeds the capacity also exceeds the free amount.
    allows_amount = func.fits_units(wanted.c.amount, *units_of_inventory, type_=Boolean)
    key = (wanted.c.class_id, wanted.c.amount, *units_of_inventory)
    rows: Iterable[Any] = reader.execute(
        select(
            *key,
            func.max(func.greatest(inventories.c.capacity, 0)).filter(exceeds_capacity),
            func.max(func.greatest(free, 0)).filter(exceeds_free),
            func.sum(func.greatest(free, 0)).filter(exceeds_free),
        )
        .join(inventories, inventories.c.resource_class_id == wanted.c.class_id)
        .where(in_scope, or_(exceeds_free, not_(allows_amount)))
        .group_by(*key)
    )
    failing: dict[tuple[int, int], _Failing] = {}
    units: dict[int, set[UnitLimits]] = {}
    for class_id, amount, min_unit, max_unit, step_size, *amounts in rows:
        units.setdefault(class_id, set()).add(UnitLimits(min_unit, max_unit, step_size))
        failing[class_id, amount] = failing.get((class_id, amount), _Failing()).merged(_Failing(*amounts))
    return FilterAmounts(failing, units)


def _failing_amounts(cloud: Cloud, groups: Iterable[GroupFilters]) -> Iterator[tuple[int, int]]:
    """Yield the class id and the amount of each filter that an inventory around a covered root fails."""
    bits = cloud.layout.bits
    patterns = {each for root in cloud.roots for each in (*root.pattern.own, *root.pattern.shared)}
    for group in groups:
        inventory_bits = {
            each.resource_class: 1 << bits[each.condition] for each in group.having([FilterCode.INVENTORY])
        }
        for each in group.having([FilterCode.UNIT, FilterCode.CAPACITY, FilterCode.FREE]):
            has_inventory, passes = inventory_bits[each.resource_class], 1 << bits[each.condition]
            if isinstance(each.condition, AmountCondition) and any(
                pattern & has_inventory and not pattern & passes for pattern in patterns
            ):
                yield each.condition.class_id, _bounded(each.condition.amount)
