"""The shape of criteria: criteria with placeholders for their ids and amounts.

Searches that differ only in these numbers have the same statement, apart from its values. So it is built and
compiled for the shape; that takes several times as long as to find ten candidates.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from placement_svc.db.search.criteria import ResolvedMembership, SearchCriteria, SupplierCriteria
from placement_svc.db.search.sharing import SharedSupply, Supplies
from placement_svc.domain.demands import CombinationRules, Demand

FIRST_PLACEHOLDER = 2**30
"""The first placeholder; the others follow. Criteria with such a large amount have no shape."""

MAX_SUPPLIES = 200
"""The most supplies of sharing providers in a shape; each needs some 300 bytes of memory."""

_LARGE_NUMBER = re.compile(r"\d{10}")


class CriteriaShape(NamedTuple):
    """Criteria whose numbers are placeholders, and the numbers that these stand for, in their order.

    Ids of resource classes are no placeholders, nor is zero, which has a meaning of its own (`ANY_PART`,
    `UNKNOWN_TREE`). Equal ids have the same placeholder. `supplies` has the supplies by the criteria of
    the shape, with the ids of providers and aggregates: most requests find the same sharing providers.
    """

    criteria: SearchCriteria
    supplies: Supplies
    numbers: Sequence[int]


def shape_of(criteria: SearchCriteria, supplies: Supplies) -> CriteriaShape | None:
    """Return the shape of criteria; None if it cannot have placeholders, or few searches would have it.

    That is so for large numbers and many supplies.
    """
    if sum(len(of_demand) for _, of_demand in supplies) > MAX_SUPPLIES:
        return None
    shaper = _Shaper()
    shape = replace(
        criteria,
        rules=shaper.rules(criteria.rules),
        by_demand=tuple(map(shaper.supplier, criteria.by_demand)),
        root_required=shaper.traits.membership(criteria.root_required),
        root_member_of=shaper.aggregates.membership(criteria.root_member_of),
        unsuffixed_forbidden_aggregates=shaper.aggregates.several(criteria.unsuffixed_forbidden_aggregates),
        unsuffixed_not_in_tree=shaper.trees(criteria.unsuffixed_not_in_tree),
        small_trait_sets=shaper.traits.sets(criteria.small_trait_sets),
        small_aggregate_sets=shaper.aggregates.sets(criteria.small_aggregate_sets),
        sufficient_trait_sets=shaper.traits.sets(criteria.sufficient_trait_sets),
        sufficient_aggregate_sets=shaper.aggregates.sets(criteria.sufficient_aggregate_sets),
        split_amounts=tuple(
            (demand, class_id, shaper.amount(amount)) for demand, class_id, amount in criteria.split_amounts
        ),
        # No statement depends on these. The counts say how large a small set is: 0, not None.
        ordering=None,
        root_count=0,
        providers_by_trait=Counter(),
        providers_by_aggregate=Counter(),
    )
    shaped_supplies = tuple(map(shaper.supplies, supplies))
    kept = [class_id for each in criteria.by_demand for class_id, _ in each.resources]
    kept += [id_ for _, of_demand in supplies for supply in of_demand for id_ in supply.aggregate_ids]
    is_safe = max([*shaper.numbers, *kept], default=0) < FIRST_PLACEHOLDER
    return CriteriaShape(shape, shaped_supplies, shaper.numbers) if is_safe else None


def with_numbers(value: Any, numbers: Sequence[int]) -> Any:
    """Return the value of a parameter with the numbers that its placeholders stand for."""
    if isinstance(value, list):
        return [with_numbers(each, numbers) for each in value]
    if isinstance(value, int) and value >= FIRST_PLACEHOLDER:
        return numbers[value - FIRST_PLACEHOLDER]
    return value


def has_only_placeholders(text: str, values: Iterable[Any], count: int) -> bool:
    """Return whether `with_numbers` replaces all placeholders of a statement, of which there are `count`.

    It replaces integers among the values, and in lists, but no sum of amounts and no number in a text.
    """
    items = [each for value in values for each in (value if isinstance(value, list) else [value])]
    numbers = [each for each in items if isinstance(each, int)]
    texts = [text, *(str(each) for each in items if not isinstance(each, int))]
    has_other_numbers = max(numbers, default=0) >= FIRST_PLACEHOLDER + count
    return not has_other_numbers and not any(map(_LARGE_NUMBER.search, texts))


class _Ids:
    """Placeholders for ids of one kind: equal ids have the same one."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers
        self._placeholders: dict[int, int] = {}

    def one(self, id_: int) -> int:
        if id_ not in self._placeholders:
            self._placeholders[id_] = _add(self._numbers, id_)
        return self._placeholders[id_]

    def several(self, ids: Iterable[int]) -> frozenset[int]:
        return frozenset(map(self.one, sorted(ids)))

    def sets(self, sets: Iterable[frozenset[int]]) -> frozenset[frozenset[int]]:
        return frozenset(map(self.several, sorted(sets, key=sorted)))

    def membership(self, membership: ResolvedMembership) -> ResolvedMembership:
        any_of = tuple(map(self.several, membership.any_of))
        return ResolvedMembership(any_of, self.several(membership.forbidden))


class _Shaper:
    """Replaces the numbers of one search by placeholders, and collects them in `numbers`."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.traits = _Ids(self.numbers)
        self.aggregates = _Ids(self.numbers)
        self._trees = _Ids(self.numbers)
        self._providers = _Ids(self.numbers)
        self._suppliers: dict[SupplierCriteria, SupplierCriteria] = {}

    def amount(self, amount: int) -> int:
        """Return a placeholder of its own, as no statement depends on whether two amounts are equal."""
        return _add(self.numbers, amount)

    def trees(self, root_ids: Iterable[int]) -> frozenset[int]:
        return self._trees.several(root_ids)

    def rules(self, rules: CombinationRules) -> CombinationRules:
        demands = [
            Demand(f"_{index}" if demand.suffix else "", tuple((name, 1) for name, _ in demand.resources))
            for index, demand in enumerate(rules.demands)
        ]
        required = tuple(map(self.traits.several, rules.unsuffixed_required))
        return replace(rules, demands=tuple(demands), unsuffixed_required=required)

    def supplies(
        self, supplies: tuple[SupplierCriteria, tuple[SharedSupply, ...]]
    ) -> tuple[SupplierCriteria, tuple[SharedSupply, ...]]:
        criteria, of_demand = supplies
        shaped = (replace(each, trait_ids=self.traits.several(each.trait_ids)) for each in of_demand)
        return self.supplier(criteria), tuple(shaped)

    def supplier(self, criteria: SupplierCriteria) -> SupplierCriteria:
        shaped = self._suppliers.get(criteria)
        if shaped is None:
            shaped = self._suppliers[criteria] = replace(
                criteria,
                resources=tuple((class_id, self.amount(amount)) for class_id, amount in criteria.resources),
                required=self.traits.membership(criteria.required),
                member_of=self.aggregates.membership(criteria.member_of),
                in_tree=None if criteria.in_tree is None else self._trees.one(criteria.in_tree),
                not_in_tree=self.trees(criteria.not_in_tree),
                added=frozenset(
                    (class_id, self._providers.one(id_)) for class_id, id_ in sorted(criteria.added)
                ),
                whole=None if criteria.whole is None else self.supplier(criteria.whole),
            )
        return shaped


def _add(numbers: list[int], number: int) -> int:
    """Add a number and return its placeholder; zero stays as it is."""
    if not number:
        return number
    numbers.append(number)
    return FIRST_PLACEHOLDER + len(numbers) - 1
