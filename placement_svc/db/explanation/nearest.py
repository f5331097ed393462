"""The choice of the roots that come closest to having candidates (`docs/spec/extensions.md 3.6`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    FromClause,
    Integer,
    Numeric,
    Select,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    not_,
    select,
    true,
    union_all,
)

from placement_svc.db.explanation.cloud import EqualRoots
from placement_svc.db.explanation.patterns import (
    inventory_row,
    number_conditions,
    pattern_type,
    provider_row,
    select_patterns,
    write_pattern,
)
from placement_svc.db.explanation.rows import table_of
from placement_svc.db.filters import free_amount, least_amount
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.db.tables import resource_providers
from placement_svc.domain.explanation.filters import CombinationFilter, RootFilter
from placement_svc.domain.explanation.root_failures import (
    GroupFailures,
    UnsuppliedDemand,
    project,
    separating_bits,
)
from placement_svc.domain.explanation.supplier_tests import Bits
from placement_svc.domain.inventory import MAX_CAPACITY

MAX_NEAREST = 10
"""The number of roots in `nearest`."""

GAP_DIGITS = 9
"""The digits of a gap after the point; further ones can differ between equal sums of fractions."""

MAX_DOUBLE_AMOUNT = 10**300
"""An amount that a double precision can hold; the gaps of all larger amounts are 1 too, after rounding."""


@dataclass(frozen=True)
class RootFailures:
    """The filters that the roots of a group fail: of request groups, on the root, or on combinations."""

    root: EqualRoots
    groups: tuple[GroupFailures, ...]
    root_filters: tuple[RootFilter, ...]
    combination: CombinationFilter | None

    @cached_property
    def count(self) -> int:
        """How many filters fail."""
        of_groups = sum(each.count for each in self.groups)
        return of_groups + len(self.root_filters) + (self.combination is not None)

    @property
    def demands(self) -> list[UnsuppliedDemand]:
        """The parts of the request that providers of each root would have to supply."""
        return [demand for group in self.groups for demand in group.demands]


def with_fewest(failures: Iterable[RootFailures]) -> list[RootFailures]:
    """Return those with the lowest counts that have `MAX_NEAREST` roots, and all others with these counts."""
    chosen: list[RootFailures] = []
    roots = 0
    for each in sorted(failures, key=lambda each: each.count):
        if roots >= MAX_NEAREST and each.count > chosen[-1].count:
            break
        chosen.append(each)
        roots += len(each.root.root_ids)
    return chosen


def select_nearest(
    reader: InventoryReader,
    bits: Bits,
    failures: Sequence[RootFailures],
    shared_gaps: Sequence[Mapping[UnsuppliedDemand, Fraction]],
) -> list[tuple[int, RootFailures]]:
    """Return the ids of the nearest roots, in their order, with what they fail: one statement.

    `shared_gaps` has, for each of `failures`, the smallest gap of the sharing providers of each demand.

    Most roots of a cloud can fail equally many filters. So PostgreSQL computes their gaps, and reads the
    providers of these roots only. It does not compute the part of a gap that no inventory affects, which is
    the same at all roots of a group: in a large request, most demands of most roots are such a part.
    """
    lacking: list[tuple[int, UnsuppliedDemand]] = []
    rows = []
    for number, (each, shared) in enumerate(zip(failures, shared_gaps, strict=True)):
        known = Fraction(0)
        for demand in each.demands:
            if demand.has_inventory and demand.lacks_amounts:
                lacking.append((number, demand))
            elif demand.lacks_amounts:
                known += _gap_without_inventory(demand, shared.get(demand))
        rows += [(root_id, number, each.count, float(known)) for root_id in each.root.root_ids]
    covered = table_of(
        "covered", rows, root_id=Integer(), number=Integer(), failures=Integer(), known_gap=Double()
    )
    root = resource_providers.alias("root")
    query = select(covered.c.root_id, covered.c.number).join(root, root.c.id == covered.c.root_id)
    gap: ColumnElement[Any] = covered.c.known_gap
    if lacking:
        gaps = _select_gaps(bits, covered, failures, lacking, shared_gaps)
        query = query.outerjoin(gaps, gaps.c.root_id == covered.c.root_id)
        gap += func.coalesce(gaps.c.gap, 0)
    rounded = func.round(cast(gap, Numeric), GAP_DIGITS)
    found = reader.execute(query.order_by(covered.c.failures, rounded, root.c.uuid).limit(MAX_NEAREST))
    return [(root_id, failures[number]) for root_id, number in found]


def _gap_without_inventory(demand: UnsuppliedDemand, of_sharing: Fraction | None) -> Fraction:
    """Return the gap of a demand if no provider of the tree that comes closest has an inventory for it.

    `of_sharing` is the smallest gap of the sharing providers. The gap is 1 if there is no inventory at all.
    """
    gaps = [] if of_sharing is None else [of_sharing]
    if demand.own:
        gaps.append(Fraction(len(demand.resources)))
    return min(gaps, default=Fraction(0 if demand.shared else 1))


def _select_gaps(
    bits: Bits,
    covered: FromClause,
    failures: Sequence[RootFailures],
    lacking: Sequence[tuple[int, UnsuppliedDemand]],
    shared_gaps: Sequence[Mapping[UnsuppliedDemand, Fraction]],
) -> FromClause:
    """Return the gap of each root: the sum over its demands of the smallest gap of their providers.

    `lacking` has the demands, each with the position of its root in `failures`.
    """
    demands = {demand: number for number, demand in enumerate(dict.fromkeys(demand for _, demand in lacking))}
    # The providers that come closest differ from others around them in few conditions. Only these are tested.
    kept = number_conditions(
        separating_bits(((demand.own, failures[n].root.pattern.own) for n, demand in lacking), bits)
    )
    closest = table_of(
        "closest",
        sorted(
            {
                (
                    n,
                    demands[demand],
                    len(demand.resources),
                    f'"{write_pattern(project(each, bits, kept), kept)}"',
                )
                for n, demand in lacking
                for each in demand.own
            }
        ),
        number=Integer(),
        demand=Integer(),
        resources=Integer(),
        pattern=pattern_type(kept),
    )
    shared = table_of(
        "shared",
        [
            (n, demands[demand], float(shared_gaps[n][demand]))
            for n, demand in lacking
            if demand in shared_gaps[n]
        ],
        number=Integer(),
        demand=Integer(),
        gap=Double(),
    )
    wanted = table_of(
        "wanted",
        [
            (n, class_id, min(amount, MAX_CAPACITY + 1), min(amount, MAX_DOUBLE_AMOUNT))
            for demand, n in demands.items()
            for class_id, amount in demand.resources
        ],
        demand=Integer(),
        class_id=Integer(),
        amount=BigInteger(),
        exact_amount=Double(),
    )
    of_providers = _select_provider_gaps(kept, covered, closest, wanted)
    of_shared = select(covered.c.root_id, shared.c.demand, shared.c.gap).join(
        shared, shared.c.number == covered.c.number
    )
    gaps = union_all(of_providers, of_shared).subquery("gaps")
    of_slots = (
        select(gaps.c.root_id, func.min(gaps.c.gap).label("gap"))
        .group_by(gaps.c.root_id, gaps.c.demand)
        .subquery("of_slots")
    )
    return (
        select(of_slots.c.root_id, func.sum(of_slots.c.gap).label("gap"))
        .group_by(of_slots.c.root_id)
        .subquery("of_roots")
    )


def _select_provider_gaps(
    bits: Bits, covered: FromClause, closest: FromClause, wanted: FromClause
) -> Select[Any]:
    """Return the query for the gap of each provider that comes closest in a demand, by root and demand.

    Each resource of the demand adds 1, and an inventory of it adds its gap minus 1. The inventories are not
    joined to the providers but grouped with them: PostgreSQL underestimates how many providers come closest,
    and would look up the inventories of each by index.
    """
    is_covered = inventory_row.c.root_id.in_(select(covered.c.root_id))
    patterns = (
        select_patterns(bits, is_covered)
        .join(covered, covered.c.root_id == provider_row.c.root_id)
        .add_columns(covered.c.number)
        .cte("patterns")
        .prefix_with("MATERIALIZED")
    )
    providers = select(
        patterns.c.root_id,
        patterns.c.provider_id,
        closest.c.demand,
        cast(closest.c.resources, Double).label("gap"),
        true().label("is_closest"),
    ).join(closest, and_(closest.c.number == patterns.c.number, closest.c.pattern == patterns.c.pattern))
    held = (
        select(
            inventory_row.c.root_id,
            inventory_row.c.provider_id,
            wanted.c.demand,
            _gap(wanted) - 1,
            false(),
        )
        .join(wanted, wanted.c.class_id == inventory_row.c.resource_class_id)
        .where(is_covered)
    )
    parts = union_all(providers, held).subquery("parts")
    return (
        select(parts.c.root_id, parts.c.demand, func.sum(parts.c.gap).label("gap"))
        .group_by(parts.c.root_id, parts.c.provider_id, parts.c.demand)
        .having(func.bool_or(parts.c.is_closest))
    )


def _gap(wanted: FromClause) -> ColumnElement[Any]:
    """Return the sum of (wanted - best) / wanted over the filters that an inventory fails.

    Units that allow no amount count as 1. The error of the sum is far below `GAP_DIGITS`.
    """
    amount, exact = wanted.c.amount, wanted.c.exact_amount
    columns = inventory_row.c
    step = cast(columns.step_size, BigInteger)
    smallest, largest = least_amount(inventory_row), columns.max_unit // step * step
    below = amount // step * step
    lower, upper = (func.least(func.greatest(each, smallest), largest) for each in (below, below + step))
    nearest = case(
        (smallest > largest, None), (func.abs(lower - amount) <= func.abs(upper - amount), lower), else_=upper
    )
    free = free_amount(inventory_row)
    allows = func.fits_units(amount, columns.min_unit, columns.max_unit, columns.step_size)
    parts: list[tuple[ColumnElement[bool], Any]] = [
        (not_(allows), func.coalesce((exact - nearest) / exact, 1)),
        (columns.capacity < amount, (exact - func.greatest(columns.capacity, 0)) / exact),
        (free < amount, (exact - func.greatest(free, 0)) / exact),
    ]
    gap: ColumnElement[Any] = sum((case(part, else_=0) for part in parts), start=literal(0, Double))
    return gap
