"""The greatest number of claims of connected roots: an upper bound, and in small cases the number itself."""

import math
from collections.abc import Collection, Mapping, Sequence

from placement_svc.domain.combining.candidates import combine
from placement_svc.domain.combining.shared_lists import distinct_lists
from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.simulated_claims.amounts import (
    ClaimKind,
    RootSuppliers,
    SimulatedInventories,
    amounts_of,
)
from placement_svc.domain.simulated_claims.competing_demands import CompetingDemands, compete_only
from placement_svc.domain.simulated_claims.packing import StepBudget, StepsExhausted, pack

MAX_KINDS = 60
"""The kinds of claims of connected roots for which the greatest number is searched."""

MAX_CANDIDATES = 1000
"""The candidates of connected roots that are generated to find their kinds of claims."""

MAX_CANDIDATES_IN_ALL = 100_000
"""The candidates that are generated for a request; but always two, which shows whether there is only one."""

MAX_STEPS = 100_000
"""The steps of all searches for a request that try numbers of each kind; one takes 10 to 100 microseconds."""

MAX_COMPETING_STEPS = 500_000
"""The steps of all other searches for a request (`CompetingDemands`); one takes 4 to 10 microseconds."""

MAX_STEPS_PER_ROOT = 20_000
"""The most of these steps for one root."""


def connected_roots(
    roots: Sequence[RootSuppliers], inventories: SimulatedInventories, deadline: Deadline
) -> list[list[RootSuppliers]]:
    """Return the roots in lists: roots of different lists have no supplier in common."""
    leaders = {root.id: root.id for root in roots}

    def leader(id_: int) -> int:
        while leaders[id_] != id_:
            leaders[id_] = id_ = leaders[leaders[id_]]
        return id_

    # Many roots can have one list, of providers that serve all of them.
    first_root_of_list: dict[int, int] = {}
    distinct: list[tuple[int, Sequence[int]]] = []
    for root in deadline.checked(roots):
        for ids in distinct_lists(root.suppliers):
            if id(ids) in first_root_of_list:
                leaders[leader(root.id)] = leader(first_root_of_list[id(ids)])
            else:
                first_root_of_list[id(ids)] = root.id
                distinct.append((root.id, ids))
    # Only a sharing provider can supply the tree of another root.
    sharing = {
        id_
        for root_id, ids in deadline.checked(distinct)
        for id_ in deadline.checked(ids)
        if inventories.path(id_)[0] != root_id
    }
    first_root: dict[int, int] = {}
    for root_id, ids in deadline.checked(distinct if sharing else ()):
        for id_ in deadline.checked(sharing.intersection(ids)):
            leaders[leader(root_id)] = leader(first_root.setdefault(id_, root_id))
    connected: dict[int, list[RootSuppliers]] = {}
    for root in deadline.checked(roots):
        connected.setdefault(leader(root.id), []).append(root)
    return list(connected.values())


def balanced_counts(kinds: Sequence[ClaimKind], inventories: SimulatedInventories) -> dict[ClaimKind, int]:
    """Return how many claims of each kind to make until none fits; their number may not be the greatest.

    Each step takes the kind of which most claims are possible, and makes half of them. So an inventory that
    many kinds need is not used up early.
    """
    free = inventories.part({key for kind in kinds for key, _ in kind})
    counts = dict.fromkeys(kinds, 0)
    amounts = {kind: dict(kind) for kind in kinds}
    while True:
        times = {kind: free.times(of_claim) for kind, of_claim in amounts.items()}
        kind = max(kinds, key=times.__getitem__, default=None)
        if kind is None or not times[kind]:
            return counts
        claimed = times[kind] if len(kinds) == 1 else -(-times[kind] // 2)
        free.claim(amounts[kind], claimed)
        counts[kind] += claimed


class MostClaims:
    """The greatest number of claims that `inventories` allow, without a maximum."""

    def __init__(
        self,
        rules: CombinationRules,
        inventories: SimulatedInventories,
        deadline: Deadline,
        memory: MemoryBudget,
    ) -> None:
        self._rules = rules
        self._inventories = inventories
        self._deadline = deadline
        self._memory = memory
        self.demands = [(number, each) for number, each in enumerate(rules.demands) if each.resources]
        """The demands with resources, with their number."""
        amounts: dict[str, list[int]] = {}
        for _, demand in self.demands:
            for name, amount in demand.resources:
                amounts.setdefault(name, []).append(amount)
        may_be_split = rules.splittable_classes
        self._repeated = {
            name: (sum(each), 1 if name in may_be_split else math.gcd(*each))
            for name, each in amounts.items()
            if len(each) > 1
        }
        """For each class that several demands request, the sum and the greatest divisor of the amounts.

        The parts of a class that is split have no common divisor.
        """
        self._bounds: dict[tuple[int, int], tuple[Sequence[int], int]] = {}
        """The bounds of demands by single lists: of each, the number of the demand and the identity."""
        self._steps = StepBudget(MAX_STEPS, deadline)
        self._competing_steps = StepBudget(MAX_COMPETING_STEPS, deadline)
        self._generated = 0
        """How many candidates have been generated."""

    def is_greatest(self, count: int, roots: Sequence[RootSuppliers]) -> bool:
        """Return whether connected roots certainly have no more claims than a run that ended with `count`.

        If a single demand has resources, each claim has one supplier, and no choice gives more.
        """
        if len(self.demands) == 1 and not self._rules.splittable:
            return True
        return count == self.bound(roots)

    def bound(self, roots: Sequence[RootSuppliers]) -> int:
        """Return an upper bound: the sum of those of each root, or that of all together if it is less."""
        bound = sum(self._common_bound([root]) for root in self._deadline.checked(roots))
        return min(bound, self._common_bound(roots)) if len(roots) > 1 else bound

    def _common_bound(self, roots: Sequence[RootSuppliers]) -> int:
        """Return an upper bound by each demand, and by each class that several demands request."""
        bounds = []
        ids_by_class: dict[str, set[int]] = {name: set() for name in self._repeated}
        for number, demand in self.demands:
            lists = distinct_lists(root.suppliers[number] for root in roots)
            if len(lists) == 1:
                [ids] = lists
                bounds.append(self._bound_of_list(number, demand, ids))
            else:
                bounds.append(self._bound_of_demand(number, demand, set[int]().union(*lists)))
            for name in self._repeated.keys() & dict(demand.resources).keys():
                ids_by_class[name].update(*lists)
        free = self._inventories.free
        for name, (total, divisor) in self._repeated.items():
            usable = sum(max(free[id_, name], 0) // divisor * divisor for id_ in ids_by_class[name])
            bounds.append(usable // total)
        return min(bounds)

    def _bound_of_list(self, number: int, demand: Demand, ids: Sequence[int]) -> int:
        """Return `_bound_of_demand`, which is computed once for a list that many roots share."""
        key = number, id(ids)
        if key not in self._bounds:
            self._bounds[key] = ids, self._bound_of_demand(number, demand, ids)
        return self._bounds[key][1]

    def _bound_of_demand(self, number: int, demand: Demand, ids: Collection[int]) -> int:
        """Return how many claims these suppliers can supply with one demand."""
        checked = self._deadline.checked(ids)
        if number in self._rules.splittable:
            [(name, amount)] = demand.resources
            return sum(self._free_for_parts(id_, name, amount) for id_ in checked) // amount
        return sum(self._inventories.times_of(demand, id_) for id_ in checked)

    def _free_for_parts(self, provider_id: int, resource_class: str, amount: int) -> int:
        """Return how much of a class a provider can supply with all its parts of an amount."""
        units = self._inventories.units(provider_id, resource_class)
        if units.least > amount or not units.is_multiple(amount):
            return 0
        free = max(self._inventories.free[provider_id, resource_class], 0)
        return free // units.step_size * units.step_size

    def kinds(
        self, roots: Sequence[RootSuppliers], inventories: SimulatedInventories
    ) -> dict[ClaimKind, int] | None:
        """Return the kinds of all candidates, each with the first root that can be the anchor.

        `inventories` are those at present. None: there are too many candidates.
        """
        most = max(2, min(MAX_CANDIDATES, MAX_CANDIDATES_IN_ALL - self._generated))
        found: dict[ClaimKind, int] = {}
        for root in roots:
            for candidate in combine(self._rules, root.suppliers, inventories, self._deadline, self._memory):
                self._generated += 1
                most -= 1
                if most < 0 or len(found) > MAX_KINDS:
                    return None
                found.setdefault(frozenset(amounts_of(self._rules.demands, candidate).items()), root.id)
        return found

    def counts_at(
        self, root: RootSuppliers, counts: Mapping[ClaimKind, int] | None
    ) -> Mapping[ClaimKind, int] | None:
        """Return the greatest number of claims at a root that shares no supplier, as that of each kind.

        `counts` are those of some claims, with all kinds; None if there are too many kinds. Return None if
        the greatest number cannot be found in the remaining steps.
        """
        if not compete_only(self._rules, root.suppliers, self._inventories):
            return None if counts is None else self.counts(list(counts))
        least = sum(counts.values()) if counts else 0
        try:
            with self._competing_steps.part(MAX_STEPS_PER_ROOT) as steps:
                competing = CompetingDemands(
                    self._rules, root.suppliers, self._inventories, steps, self._deadline
                )
                return competing.most(least, self.bound([root])) or counts or {}
        except StepsExhausted:
            return None

    def counts(self, kinds: Sequence[ClaimKind]) -> dict[ClaimKind, int] | None:
        """Return the greatest number of claims as that of each kind; None if that takes too many steps."""
        try:
            counts = pack(list(map(dict, kinds)), self._inventories, self._steps)
        except StepsExhausted:
            return None
        return dict(zip(kinds, counts, strict=True))
