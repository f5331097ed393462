"""The most claims at a root whose demands only compete for amounts (`docs/spec/extensions.md 4`).

Equal demands count together. How often one supplier supplies each of them is a vector of counts, and only the
maximal vectors of a supplier matter. The search adds up those of one supplier after the other, and keeps the
maximal sums. These are few if there are few different demands, however many candidates there are.

In the end, claims are made of these counts. The suppliers of different demands can be combined in any way,
except for isolated demands: their suppliers have to differ in each claim. That is possible if no supplier is
used more often than there are claims (a regular bipartite graph has a perfect matching).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from placement_svc.domain.combining.interfaces import SuppliersByDemand
from placement_svc.domain.combining.matching import different_suppliers
from placement_svc.domain.demands import CombinationRules, Resources
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.simulated_claims.amounts import ClaimKind, SimulatedInventories, amounts_of
from placement_svc.domain.simulated_claims.packing import StepBudget, StepsExhausted

MAX_SUPPLIERS = 100
"""The most suppliers of a root whose counts are searched."""

MAX_DIFFERENT_DEMANDS = 200
"""The most different demands whose counts are searched: `_possible` calls itself for each of them."""

Counts = tuple[int, ...]
"""How often demands are supplied: a number for each of the different ones."""

Runs = Sequence[tuple[int, int]]
"""The ids of the suppliers of a demand in successive claims, each with a number of claims."""

CLAIM = ""
"""The class of which a supplier of isolated demands has one for each claim: it supplies one of them."""


@dataclass(frozen=True)
class _EqualDemands:
    """Demands, by number, with the same resources and suppliers.

    `amounts` are those of one of them by resource class, with 1 of `CLAIM` if it is isolated.
    """

    amounts: Mapping[str, int]
    supplier_ids: frozenset[int]
    numbers: Sequence[int]
    are_isolated: bool


def compete_only(
    rules: CombinationRules, suppliers: SuppliersByDemand, inventories: SimulatedInventories
) -> bool:
    """Return whether only amounts and isolation from all suffixed demands exclude choices of suppliers."""
    if rules.same_subtree or rules.subtree_exclusions or rules.splittable or rules.unsuffixed_required:
        return False
    suffixed = {number for number, is_suffixed in enumerate(rules.suffixed) if is_suffixed}
    if rules.isolated and rules.isolated != suffixed:
        return False
    if any(not rules.demands[number].resources for number in rules.isolated):
        return False
    sums = Counter[tuple[int, str]]()
    for ids, amounts in zip(suppliers, rules.summed_amounts, strict=True):
        for name, amount in amounts:
            sums.update({(id_, name): amount for id_ in ids})
    if any(amount > inventories.max_unit[key] for key, amount in sums.items()):
        return False
    return len({id_ for ids in suppliers for id_ in ids}) <= MAX_SUPPLIERS


class CompetingDemands:
    """The demands of a root for which `compete_only` is true; `inventories` are those before all claims."""

    def __init__(
        self,
        rules: CombinationRules,
        suppliers: SuppliersByDemand,
        inventories: SimulatedInventories,
        budget: StepBudget,
        deadline: Deadline,
    ) -> None:
        self._rules = rules
        self._suppliers = suppliers
        self._inventories = inventories
        self._budget = budget
        self._deadline = deadline
        self._equal = self._equal_demands()
        self._ids = sorted(frozenset[int]().union(*(each.supplier_ids for each in self._equal)))

    def most(self, least: int, bound: int) -> Mapping[ClaimKind, int] | None:
        """Return the greatest number of claims as that of each kind; None if it is not above `least`.

        It is at most `bound`. Raises `StepsExhausted`, also for too many different demands.
        """
        if len(self._equal) > MAX_DIFFERENT_DEMANDS:
            raise StepsExhausted
        found: dict[int, Counts] | None = None
        # The bound is often reached. What is enough for some claims is enough for fewer.
        count = bound
        while least < bound:
            supplied = self._supplied(count)
            if supplied is None:
                bound = count - 1
            else:
                least, found = count, supplied
            count = -(-(least + bound) // 2)
        return None if found is None else self._kinds(found, least)

    def _equal_demands(self) -> Sequence[_EqualDemands]:
        """Return the different demands with resources."""
        numbers: dict[tuple[Resources, frozenset[int], bool], list[int]] = {}
        for number, demand in enumerate(self._rules.demands):
            if demand.resources:
                ids = frozenset(self._suppliers[number])
                key = tuple(sorted(demand.resources)), ids, number in self._rules.isolated
                numbers.setdefault(key, []).append(number)
        return [
            _EqualDemands(dict(resources) | ({CLAIM: 1} if are_isolated else {}), ids, of_key, are_isolated)
            for (resources, ids, are_isolated), of_key in numbers.items()
        ]

    def _supplied(self, count: int) -> dict[int, Counts] | None:
        """Return how often each supplier supplies each demand for `count` claims; None if they do not fit."""
        needed = tuple(count * len(each.numbers) for each in self._equal)
        known: dict[tuple[object, ...], Sequence[Counts]] = {}
        vectors = [self._vectors(id_, count, needed, known) for id_ in self._ids]
        # The most that each supplier and all after it can supply together, in reverse order.
        remaining = [(0,) * len(needed)]
        for of_supplier in reversed(vectors):
            remaining.append(_sum(remaining[-1], tuple(map(max, zip(*of_supplier, strict=True))), needed))
        steps: list[dict[Counts, tuple[Counts, Counts]]] = []
        sums: Sequence[Counts] = [remaining[0]]
        for of_supplier, others in zip(vectors, remaining[-2::-1], strict=True):
            step: dict[Counts, tuple[Counts, Counts]] = {}
            for before in sums:
                for vector in of_supplier:
                    self._budget.take()
                    after = _sum(before, vector, needed)
                    if _sum(after, others, needed) == needed:
                        step.setdefault(after, (before, vector))
            steps.append(step)
            sums = self._maximal(step)
        if needed not in sums:
            return None
        supplied = {}
        total = needed
        for id_, step in zip(reversed(self._ids), reversed(steps), strict=True):
            total, supplied[id_] = step[total]
        return supplied

    def _vectors(
        self, id_: int, count: int, needed: Counts, known: dict[tuple[object, ...], Sequence[Counts]]
    ) -> Sequence[Counts]:
        """Return the maximal vectors of a supplier; `known` has those of suppliers with the same amounts."""
        amounts = [each.amounts if id_ in each.supplier_ids else None for each in self._equal]
        names = {name for of_demand in amounts if of_demand for name in of_demand}
        free = {name: count if name == CLAIM else self._inventories.free[id_, name] for name in names}
        key = tuple(each is not None for each in amounts), tuple(sorted(free.items()))
        if key not in known:
            known[key] = self._maximal(self._possible(amounts, free, needed))
        return known[key]

    def _possible(
        self, amounts: Sequence[Mapping[str, int] | None], free: Mapping[str, int], needed: Counts
    ) -> Iterator[Counts]:
        """Yield the vectors that these free amounts allow, of which the last element cannot be greater."""
        self._budget.take()
        if not amounts:
            yield ()
            return
        first, *others = amounts
        if first is None:
            yield from ((0, *rest) for rest in self._possible(others, free, needed[1:]))
            return
        most = min(needed[0], *(free[name] // amount for name, amount in first.items()))
        for times in range(most, -1, -1) if others else (most,):
            left = {name: amount - times * first.get(name, 0) for name, amount in free.items()}
            yield from ((times, *rest) for rest in self._possible(others, left, needed[1:]))

    def _maximal(self, vectors: Iterable[Counts]) -> Sequence[Counts]:
        """Return the vectors that are not less than another one in some element, and equal in the others."""
        maximal: list[Counts] = []
        for vector in sorted(set(vectors), reverse=True):
            self._budget.take()
            if not any(all(map(int.__le__, vector, other)) for other in reversed(maximal)):
                maximal.append(vector)
        return maximal

    def _kinds(self, supplied: Mapping[int, Counts], count: int) -> Mapping[ClaimKind, int]:
        """Return so many claims as the number of each kind; `supplied` is enough for them."""
        runs: dict[int, Runs] = {number: [(ids[0], count)] for number, ids in enumerate(self._suppliers)}
        """The suppliers of each demand; those of resourceless ones do not matter."""
        isolated: dict[int, Runs] = {}
        for index, each in enumerate(self._equal):
            of_equal = [(id_, supplied[id_][index]) for id_ in self._ids]
            of_each = dict(zip(each.numbers, _divided(of_equal, count), strict=False))
            (isolated if each.are_isolated else runs).update(of_each)
        if isolated:
            runs.update(self._with_different_suppliers(isolated, count))
        kinds = Counter[ClaimKind]()
        for times, suppliers in _successive_claims([runs[number] for number in sorted(runs)], count):
            kinds[frozenset(amounts_of(self._rules.demands, suppliers).items())] += times
        return kinds

    def _with_different_suppliers(self, runs: Mapping[int, Runs], count: int) -> Mapping[int, Runs]:
        """Return the runs in an order in which all demands have different suppliers in each claim."""
        ids = sorted({id_ for of_demand in runs.values() for id_, _ in of_demand})
        rows = [dict(of_demand) for of_demand in runs.values()]
        unused = [(id_, count - sum(row.get(id_, 0) for row in rows)) for id_ in ids]
        # With imaginary demands for what is left, each supplier is used in each claim.
        rows += map(dict, _divided(unused, count))
        ordered: dict[int, list[tuple[int, int]]] = {number: [] for number in runs}
        while count:
            matched = different_suppliers([list(row) for row in rows], self._deadline)
            assert matched is not None
            times = min(row[id_] for row, id_ in zip(rows, matched, strict=True))
            for row, id_ in zip(rows, matched, strict=True):
                row[id_] -= times
                if not row[id_]:
                    del row[id_]
            for of_demand, id_ in zip(ordered.values(), matched, strict=False):
                of_demand.append((id_, times))
            count -= times
        return ordered


def _sum(one: Counts, other: Counts, most: Counts) -> Counts:
    """Return the sum of two vectors, of which no element is more than that of `most`."""
    return tuple(map(min, map(int.__add__, one, other), most))


def _divided(runs: Runs, count: int) -> Iterator[Runs]:
    """Yield successive parts of runs with so many claims each; what is left at the end is left out."""
    part: list[tuple[int, int]] = []
    lacking = count
    for id_, times in runs:
        while times:
            taken = min(times, lacking)
            part.append((id_, taken))
            times -= taken
            lacking -= taken
            if not lacking:
                yield part
                part, lacking = [], count


def _successive_claims(runs: Sequence[Runs], count: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the suppliers of all demands in so many successive claims, with the number of equal ones."""
    remaining = [list(reversed(of_demand)) for of_demand in runs]
    while count:
        times = min(of_demand[-1][1] for of_demand in remaining)
        yield times, [of_demand[-1][0] for of_demand in remaining]
        for of_demand in remaining:
            id_, left = of_demand.pop()
            if left > times:
                of_demand.append((id_, left - times))
        count -= times
