"""Simulated claims of a request, until it has no candidate (`docs/spec/extensions.md 4`).

The roots get their claims one after the other. Where the demands of a root do not compete for a provider,
the number of claims is computed; otherwise claims are simulated, several at a time. Where that may be less
than the greatest number, `placement_svc.domain.simulated_claims.most_claims` settles it in small cases.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial

from placement_svc.domain.combining.candidates import Candidate, combine
from placement_svc.domain.combining.interfaces import SuppliersByDemand
from placement_svc.domain.combining.shared_lists import change_each
from placement_svc.domain.demands import CombinationRules, Resources
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.simulated_claims.amounts import (
    ClaimAmounts,
    ClaimKind,
    InventoryKey,
    RootClaims,
    RootSuppliers,
    SimulatedInventories,
    amounts_of,
)
from placement_svc.domain.simulated_claims.most_claims import balanced_counts
from placement_svc.domain.simulated_claims.run import Claimer, ClaimRun
from placement_svc.domain.simulated_claims.supplier_orders import SupplierOrders


def claim_all(
    rules: CombinationRules,
    roots: Sequence[RootSuppliers],
    inventories: SimulatedInventories,
    max_claims: int,
    deadline: Deadline,
    memory: MemoryBudget,
) -> ClaimRun:
    """Claim a request at each root as often as possible, in the order of `roots`.

    Raises what `combine` raises.
    """
    return _WholeClaimer(rules, roots, inventories, max_claims, deadline, memory).run()


class _WholeClaimer(Claimer):
    """A run of claims whose classes are not split."""

    @cached_property
    def _orders(self) -> SupplierOrders:
        """The order in which the claims use suppliers."""
        return SupplierOrders(self._inventories, self._roots, self._deadline)

    def _claim_roots(self, connected: Sequence[Sequence[RootSuppliers]], alone: Collection[int]) -> None:
        for root in self._deadline.checked(self._roots):
            found = self._claim_at(root, is_alone=root.id in alone)
            self._record(found)
            if found.is_cut:
                self._is_exact = False
                return
        for roots in connected:
            if len(roots) > 1:
                self._settle(roots)

    def _record(self, found: RootClaims) -> None:
        if found.count:
            self._claims[found.root_id] = found
            self._remaining -= found.count

    def _claim_at(self, root: RootSuppliers, *, is_alone: bool) -> RootClaims:
        """Claim as often as possible at a root, the greatest number if no other root has its suppliers."""
        able = self._able_suppliers(root.id, root.suppliers)
        here = RootSuppliers(root.id, _as_lists(able))
        if not all(here.suppliers):
            return RootClaims(root.id, 0, {})
        if _are_independent(self._rules, here.suppliers, self._inventories, self._deadline):
            return self._claim_independent(root.id, able)
        claim = partial(self._claim_dependent, root, here, is_alone=is_alone)
        return self._alike.claims_at(root, self._remaining, claim) if is_alone else claim()

    def _claim_dependent(self, root: RootSuppliers, here: RootSuppliers, *, is_alone: bool) -> RootClaims:
        """Claim at a root where the choice for one demand affects the others.

        `here` has the suppliers that can still supply a demand.
        """
        kinds = self._most.kinds([here], self._inventories)
        counts: Mapping[ClaimKind, int] | None = None
        if kinds is not None:
            counts = balanced_counts(list(kinds), self._inventories)
        if is_alone and (counts is None or not self._most.is_greatest(sum(counts.values()), [root])):
            most = self._most.counts_at(here, counts)
            if most is not None:
                counts = most
            elif counts is not None:
                self._is_exact = False
        if counts is not None:
            return self._claim_kinds(root.id, counts)
        found = self._claim_combined(here)
        if is_alone and not self._most.is_greatest(found.count, [root]):
            self._is_exact = False
        return found

    def _able_suppliers(self, root_id: int, suppliers: SuppliersByDemand) -> list[Mapping[int, int]]:
        """Return for each demand the suppliers that can still supply it, each with the number of claims.

        They have the order of `SupplierOrders`. A demand without resources has all its suppliers. Equal
        demands share one result.
        """
        able: list[Mapping[int, int]] = []
        known: dict[tuple[int, Resources], Mapping[int, int]] = {}
        for demand, ids in zip(self._rules.demands, suppliers, strict=True):
            key = id(ids), demand.resources
            if key not in known:
                known[key] = (
                    self._orders.able(root_id, demand, ids) if demand.resources else dict.fromkeys(ids, 0)
                )
            able.append(known[key])
        return able

    def _claim_independent(self, root_id: int, able: Sequence[Mapping[int, int]]) -> RootClaims:
        """Claim at a root where the choice for one demand does not affect the others."""
        possible = min(sum(able[number].values()) for number, _ in self._most.demands)
        count = min(possible, self._remaining)
        last: dict[InventoryKey, int] = {}
        for number, demand in self._most.demands:
            unsupplied = count
            for id_, times in able[number].items():
                amounts = {(id_, name): amount for name, amount in demand.resources}
                self._orders.claim(amounts, min(unsupplied, times))
                unsupplied -= min(unsupplied, times)
                if not unsupplied:
                    last |= amounts
                    break
        return RootClaims(root_id, count, last, is_cut=count < possible)

    def _claim_kinds(self, root_id: int, counts: Mapping[ClaimKind, int]) -> RootClaims:
        """Claim each kind so many times at a root, as far as the maximum number of claims allows."""
        total = 0
        last: ClaimAmounts = {}
        for kind, times in counts.items():
            allowed = min(times, self._remaining - total)
            if allowed:
                last = dict(kind)
                self._orders.claim(last, allowed)
                total += allowed
        return RootClaims(root_id, total, last, is_cut=total < sum(counts.values()))

    def _claim_combined(self, root: RootSuppliers) -> RootClaims:
        """Claim a candidate at a root, then the next one, until none is left.

        Half of the possible claims of a candidate are made, and the next candidate has the suppliers with
        most left. So a supplier that many candidates need is not used up early.
        """
        total = 0
        last: ClaimAmounts = {}
        suppliers = root.suppliers
        while candidate := self._first_candidate(suppliers):
            if total == self._remaining:
                return RootClaims(root.id, total, last, is_cut=True)
            last = amounts_of(self._rules.demands, candidate)
            times = min(-(-self._inventories.times(last) // 2), self._remaining - total)
            self._orders.claim(last, times)
            total += times
            suppliers = _as_lists(self._able_suppliers(root.id, suppliers))
        return RootClaims(root.id, total, last)

    def _first_candidate(self, suppliers: SuppliersByDemand) -> Candidate | None:
        return next(combine(self._rules, suppliers, self._inventories, self._deadline, self._memory), None)

    def _settle(self, roots: Sequence[RootSuppliers]) -> None:
        """Give connected roots the greatest number of claims, or find that they may have less."""
        total = self._claims_at(roots)
        if self._most.is_greatest(total, roots):
            return
        kinds = self._most.kinds(roots, self._initial)
        counts = None if kinds is None else self._most.counts(list(kinds))
        if kinds is None or counts is None:
            self._is_exact = False
            return
        self._remaining += total
        for kind in kinds:
            self._inventories.free.update({key: self._initial.free[key] for key, _ in kind})
        for root in roots:
            self._claims.pop(root.id, None)
            of_root = {kind: times for kind, times in counts.items() if kinds[kind] == root.id}
            found = self._claim_kinds(root.id, of_root)
            self._record(found)
            if found.is_cut:
                self._is_exact = False


def _as_lists(able: Sequence[Mapping[int, int]]) -> SuppliersByDemand:
    """Return the suppliers of each demand; demands with the same suppliers share one list."""
    return change_each(able, list)


def _are_independent(
    rules: CombinationRules,
    suppliers: SuppliersByDemand,
    inventories: SimulatedInventories,
    deadline: Deadline,
) -> bool:
    """Return whether at a root, each choice of suppliers is a candidate, and no two demands share amounts."""
    if rules.same_subtree or rules.subtree_exclusions:
        return False
    if rules.isolated and not _can_isolate_any(rules, suppliers):
        return False
    for name in rules.summed_classes:
        users = zip(suppliers, rules.summed_amounts, strict=True)
        if not _are_disjoint([ids for ids, amounts in users if name in dict(amounts)]):
            return False
    unsuffixed = [ids for ids, suffixed in zip(suppliers, rules.suffixed, strict=True) if not suffixed]
    return all(
        any(all(any_of & inventories.trait_ids(id_) for id_ in deadline.checked(ids)) for ids in unsuffixed)
        for any_of in rules.unsuffixed_required
    )


def _can_isolate_any(rules: CombinationRules, suppliers: SuppliersByDemand) -> bool:
    """Return whether no supplier of an isolated demand can supply another suffixed demand."""
    others = {
        id(ids): ids
        for demand, ids in enumerate(suppliers)
        if rules.suffixed[demand] and demand not in rules.isolated
    }
    isolated = [suppliers[demand] for demand in sorted(rules.isolated)]
    found = frozenset(itertools.chain.from_iterable(isolated)) if _are_disjoint(isolated) else None
    return found is not None and all(map(found.isdisjoint, others.values()))


def _are_disjoint(lists: Iterable[Sequence[int]]) -> bool:
    """Return whether no id is in two lists."""
    seen: set[int] = set()
    for ids in lists:
        if not seen.isdisjoint(ids):
            return False
        seen.update(ids)
    return True
