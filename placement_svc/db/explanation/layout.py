"""What an explanation reads of each root: the conditions that providers meet, and amounts that can matter."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from sqlalchemy import BigInteger, ColumnElement, func, literal
from sqlalchemy.sql.expression import Grouping

from placement_svc.db.explanation.patterns import inventory_row, number_conditions
from placement_svc.db.filters import free_amount, int_array, unused_amount
from placement_svc.domain.explanation.filters import AmountCondition, Filter, RequestFilters
from placement_svc.domain.explanation.supplier_tests import Bits
from placement_svc.domain.inventory import MAX_CAPACITY

ALLOCATABLE_COLUMNS = 2
"""The number of columns for each class in `Layout.limits`."""

HELD_COLUMNS = 5
"""The number of columns for each class in `Layout.split_amounts`."""

MAX_SUMS = 100
"""The most sums of a class in `Layout.sums`; ten different amounts can have 1,023."""


@dataclass(frozen=True)
class Layout:
    """The content of the rows of roots: the bit of each condition and, with `is_structured`, the trees.

    `limits` has the classes of which one provider may supply several groups, and the largest amount of each
    that can matter. `sums` has those of them whose groups together can request only few amounts, and these
    amounts in ascending order. `split_amounts` has the classes of which several providers may supply one
    amount, and the largest amount that they may supply.
    """

    bits: Bits
    is_structured: bool = False
    limits: Mapping[int, int] = field(default_factory=dict)
    sums: Mapping[int, Sequence[int]] = field(default_factory=dict)
    split_amounts: Mapping[int, int] = field(default_factory=dict)

    @property
    def has_order(self) -> bool:
        """Whether the order of the uuids in a tree matters: it decides who supplies how much of an amount."""
        return not self.limits.keys().isdisjoint(self.split_amounts)

    def doubled(self) -> "Layout":
        """Return the layout in which several providers may supply up to twice as much together."""
        added = self.split_amounts
        return replace(
            self,
            limits={
                class_id: min(limit + added.get(class_id, 0), MAX_CAPACITY)
                for class_id, limit in self.limits.items()
            },
            split_amounts={class_id: min(2 * amount, MAX_CAPACITY) for class_id, amount in added.items()},
        )

    @cached_property
    def amounts(self) -> dict[str, ColumnElement[int]]:
        """The columns, by name, with amounts that are aggregated from the inventories of a provider.

        For each class of `limits`, two have the largest amount that one new allocation can get, now and if
        nothing were used: of a class in `sums`, the largest sum that this amount includes, and otherwise at
        most the limit. For each class of `split_amounts`, five have the units, the capacity and the free
        amount of the inventory. Amounts whose difference cannot matter are equal, so that most providers are.
        """
        columns = [
            *(column for id_, limit in self.limits.items() for column in _allocatable(id_, limit, self.sums)),
            *(column for amount in self.split_amounts.items() for column in _held(*amount)),
        ]
        return {f"amount_{number}": column for number, column in enumerate(columns)}

    @property
    def min_units(self) -> list[str]:
        """The columns with the min_unit of each class in `split_amounts`, by name: 0 without an inventory."""
        return list(self.amounts)[ALLOCATABLE_COLUMNS * len(self.limits) :: HELD_COLUMNS]


def layout_of(filters: RequestFilters, *others: RequestFilters) -> Layout:
    """Return what the rows of roots must have for these filters, and for those of changes of the request."""
    conditions = [each for one in (filters, *others) for each in one.conditions]
    limits: dict[int, int] = {}
    sums: dict[int, set[int]] = {}
    split_amounts: dict[int, int] = {}
    for one in (filters, *others):
        for class_id, amount in one.split_amounts.items():
            split_amounts[class_id] = max(split_amounts.get(class_id, 0), min(amount, MAX_CAPACITY))
        for class_id, amounts in _amounts_by_class(one.amounts).items():
            if len(amounts) > 1:
                limits[class_id] = max(limits.get(class_id, 0), min(sum(amounts), MAX_CAPACITY))
                sums.setdefault(class_id, set()).update(islice(_sums(amounts), MAX_SUMS + 1))
    few_sums = {
        class_id: sorted(of_class)
        for class_id, of_class in sums.items()
        # If an amount may be split, a provider can supply any part of it, so every difference matters.
        if len(of_class) <= MAX_SUMS and class_id not in split_amounts
    }
    # Which providers of a tree can supply an amount together depends on each of them.
    is_structured = bool(filters.combinations or split_amounts)
    return Layout(number_conditions(conditions), is_structured, limits, few_sums, split_amounts)


def _sums(amounts: Iterable[int]) -> Iterator[int]:
    """Yield each sum of some of the amounts once, apart from those that no inventory can supply."""
    sums = {0}
    for amount in amounts:
        new = {total for each in sums if (total := each + amount) <= MAX_CAPACITY} - sums
        yield from new
        sums |= new


def _amounts_by_class(filters: Iterable[Filter]) -> Mapping[int, list[int]]:
    amounts: dict[int, list[int]] = {}
    for each in filters:
        assert isinstance(each.condition, AmountCondition)
        amounts.setdefault(each.condition.class_id, []).append(each.condition.amount)
    return amounts


def _allocatable(
    class_id: int, limit: int, sums: Mapping[int, Sequence[int]]
) -> Iterator[ColumnElement[int]]:
    """Yield the amounts that one new allocation of a class can get, now and if nothing were used."""
    for amount in (inventory_row.c.max_allocatable, unused_amount(inventory_row)):
        if class_id in sums:
            # PostgreSQL numbers elements from 1; an amount below the first sum has number 0, and so no value.
            of_class = Grouping(int_array(sums[class_id], BigInteger))
            yield _of_class(class_id, of_class[func.width_bucket(amount, of_class)])
        else:
            yield _of_class(class_id, func.least(func.greatest(amount, 0), limit))


def _held(class_id: int, amount: int) -> Iterator[ColumnElement[int]]:
    """Yield the units of an inventory of a class, its capacity, and what is free.

    No part of `amount` is larger than it. Twice the units are enough for the amounts above it that an
    explanation tries.
    """
    columns = inventory_row.c
    units = func.greatest(columns.min_unit, columns.step_size)
    greatest = func.greatest(literal(amount, BigInteger), 2 * units)
    amounts = (
        columns.min_unit,
        func.least(columns.max_unit, greatest),
        columns.step_size,
        func.least(func.greatest(columns.capacity, 0), greatest),
        func.least(func.greatest(free_amount(inventory_row), 0), greatest),
    )
    for column in amounts:
        yield _of_class(class_id, column)


def _of_class(class_id: int, column: ColumnElement[int]) -> ColumnElement[int]:
    """Return the aggregate with a column of the inventory of a class."""
    return func.max(column).filter(inventory_row.c.resource_class_id == class_id)
