"""Simulated claims of a request whose classes may be split (`docs/spec/extensions.md 4`).

Candidates can appear while claims use up inventories: a class is split as soon as no provider can supply its
whole amount. But a candidate stays one as long as its amounts are free, so it can be claimed several times.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from placement_svc.domain.combining.candidates import combine_around
from placement_svc.domain.combining.interfaces import TreeSuppliers
from placement_svc.domain.demands import CombinationRules, Resources
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.simulated_claims.amounts import (
    ClaimKind,
    InventoryKey,
    RootClaims,
    RootSuppliers,
    SimulatedInventories,
    amounts_of,
)
from placement_svc.domain.simulated_claims.packing import StepBudget, StepsExhausted
from placement_svc.domain.simulated_claims.run import Claimer, ClaimRun

MAX_STEPS = 2000
"""The most claims that one search tries, and roots that it examines for them."""

MAX_STEPS_IN_ALL = 20_000
"""The same for all searches of a request."""

MAX_LENGTH = 200
"""The most claims at one root, or at connected ones, up to which their greatest number is searched."""

Run = Sequence[tuple[int, ClaimKind]]
"""Claims in their order: the id of the root and the kind of each."""


def claim_all_with_splits(
    rules: CombinationRules,
    roots: Sequence[RootSuppliers],
    inventories: SimulatedInventories,
    max_claims: int,
    deadline: Deadline,
    memory: MemoryBudget,
) -> ClaimRun:
    """Do what `claim_all` does, for a request whose classes may be split; raises what `combine` raises."""
    return _SplitClaimer(rules, roots, inventories, max_claims, deadline, memory).run()


class _SplitClaimer(Claimer):
    """A run of claims whose classes may be split."""

    _steps = MAX_STEPS_IN_ALL
    _is_cut = False

    def _claim_roots(self, connected: Sequence[Sequence[RootSuppliers]], alone: Collection[int]) -> None:
        for root in self._deadline.checked(self._roots):
            self._claim_at(root, is_alone=root.id in alone)
        for roots in connected:
            if len(roots) > 1:
                self._finish(roots)
        if self._is_cut:
            self._is_exact = False

    def _finish(self, roots: Sequence[RootSuppliers]) -> None:
        """Claim at connected roots until none has a candidate: a claim at one can give another its first.

        In small cases, they get the greatest number of claims.
        """
        while any(self._claim_at(root, is_alone=False) for root in roots):
            pass
        count = self._claims_at(roots)
        if self._is_cut or self._most.is_greatest(count, roots):
            return
        longest = self._longest_run(roots, count)
        if longest is None:
            self._is_exact = False
        elif longest:
            allowed = count + self._remaining
            self._is_cut = len(longest) > allowed
            self._claim_instead(roots, longest[:allowed])

    def _claim_instead(self, roots: Sequence[RootSuppliers], run: Run) -> None:
        """Replace the claims at connected roots by those of a run."""
        self._restore(roots)
        self._remaining += self._claims_at(roots) - len(run)
        for root in roots:
            self._claims.pop(root.id, None)
        for _, kind in run:
            self._inventories.claim(dict(kind), 1)
        counts = Counter(root_id for root_id, _ in run)
        last = dict(run)
        for root in roots:
            if root.id in last:
                is_cut = self._is_cut and self._has_candidate(root)
                self._claims[root.id] = RootClaims(
                    root.id, counts[root.id], dict(last[root.id]), is_cut=is_cut
                )

    def _claim_at(self, root: RootSuppliers, *, is_alone: bool) -> bool:
        """Claim at a root until it has no candidate; return whether there was any claim."""
        if self._is_cut:
            return False
        if is_alone:
            found = self._alike.claims_at(root, self._remaining, partial(self._claim_alone, root))
        else:
            found = self._as_root_claims(root, list(self._simple_run(root)))
        self._remaining -= found.count
        self._is_cut = found.is_cut
        if found.count:
            self._claims[root.id] = replace(found, count=self._claims_at([root]) + found.count)
        return found.count > 0

    def _claim_alone(self, root: RootSuppliers) -> RootClaims:
        """Claim at a root that shares no supplier with another: in small cases, the greatest number."""
        claims = list(self._simple_run(root))
        count = sum(times for _, times in claims)
        if not self._most.is_greatest(count, [root]):
            longest = self._longest_run([root], count)
            if longest is None:
                self._is_exact = False
            elif longest:
                self._restore([root])
                claims = [(kind, 1) for _, kind in longest[: self._remaining]]
                for kind, times in claims:
                    self._inventories.claim(dict(kind), times)
        return self._as_root_claims(root, claims)

    def _as_root_claims(self, root: RootSuppliers, claims: Sequence[tuple[ClaimKind, int]]) -> RootClaims:
        """Return the claims that were made at a root last: each kind with its number."""
        count = sum(times for _, times in claims)
        last = dict(claims[-1][0]) if claims else {}
        is_full = count == self._remaining
        return RootClaims(root.id, count, last, is_cut=is_full and self._has_candidate(root))

    def _has_candidate(self, root: RootSuppliers) -> bool:
        """Return whether a root still has a candidate."""
        return next(self._kinds(root, self._inventories), None) is not None

    def _restore(self, roots: Sequence[RootSuppliers]) -> None:
        """Make the inventories as they were before the claims at roots that share no supplier with others."""
        self._inventories.free.update(self._initial.part(self._keys(roots)).free)

    def _keys(self, roots: Sequence[RootSuppliers]) -> set[InventoryKey]:
        """Return the inventories that claims at roots can use."""
        return {
            (id_, name)
            for root in roots
            for demand, ids in zip(self._rules.demands, root.suppliers, strict=True)
            for name, _ in demand.resources
            for id_ in self._deadline.checked(ids)
        }

    def _kinds(self, root: RootSuppliers, inventories: SimulatedInventories) -> Iterator[ClaimKind]:
        """Yield the kind of each candidate at a root."""
        able: list[Sequence[int]] = []
        known: dict[tuple[int, Resources], Sequence[int]] = {}
        for number, (demand, ids) in enumerate(zip(self._rules.demands, root.suppliers, strict=True)):
            if not demand.resources or number in self._rules.splittable:
                able.append(ids)
                continue
            key = id(ids), demand.resources
            if key not in known:
                checked = self._deadline.checked(ids)
                known[key] = [id_ for id_ in checked if inventories.times_of(demand, id_)]
            able.append(known[key])
        candidates = combine_around(
            TreeSuppliers(root.id, self._rules, able, inventories, self._deadline, self._memory)
        )
        for candidate in candidates:
            yield frozenset(amounts_of(self._rules.demands, candidate).items())

    def _simple_run(self, root: RootSuppliers) -> Iterator[tuple[ClaimKind, int]]:
        """Claim until a root has no candidate, or the maximum is reached; yield each kind and its number.

        Half of the possible claims of a candidate are made, so that one supplier is not used up early.
        """
        left = self._remaining
        while left and (kind := next(self._kinds(root, self._inventories), None)) is not None:
            self._deadline.check()
            amounts = dict(kind)
            times = min(-(-self._inventories.times(amounts) // 2), left)
            self._inventories.claim(amounts, times)
            left -= times
            yield kind, times

    def _longest_run(self, roots: Sequence[RootSuppliers], known: int) -> Run | None:
        """Return the longest run at one root or at connected ones; None if it is not found.

        The run is empty if it has `known` claims.
        """
        steps = min(MAX_STEPS, self._steps)
        if len(roots) > steps or (bound := self._most.bound(roots)) > MAX_LENGTH:
            return None
        inventories = self._initial.part(self._keys(roots))
        budget = StepBudget(steps, self._deadline)
        try:
            return self._search(roots, inventories, budget, known, bound)
        except StepsExhausted:
            return None
        finally:
            self._steps -= steps - budget.steps

    def _search(
        self,
        roots: Sequence[RootSuppliers],
        inventories: SimulatedInventories,
        budget: StepBudget,
        known: int,
        bound: int,
    ) -> Run:
        """Return the longest run of more than `known` claims by a depth-first search, empty if there is none.

        No run has more than `bound` claims. The search changes `inventories`.
        """
        longest: Run = ()
        length = known
        chosen: list[tuple[int, ClaimKind]] = []
        reached: dict[Hashable, int] = {}

        def next_claims() -> Iterator[tuple[int, ClaimKind]]:
            """Return the next claims, none if the state was reached with as many claims.

            A claim counts for the first root that can be its anchor.
            """
            used = Counter[InventoryKey]()
            for _, kind in chosen:
                used.update(dict(kind))
            state = frozenset(used.items())
            if reached.get(state, -1) >= len(chosen):
                return iter(())
            reached[state] = len(chosen)
            kinds: dict[ClaimKind, int] = {}
            for root in roots:
                budget.take()
                for kind in self._kinds(root, inventories):
                    budget.take()
                    kinds.setdefault(kind, root.id)
            return iter([(root_id, kind) for kind, root_id in kinds.items()])

        untried = [next_claims()]
        while untried and length < bound:
            claim = next(untried[-1], None)
            if claim is None:
                untried.pop()
                if chosen:
                    inventories.claim(dict(chosen.pop()[1]), -1)
                continue
            inventories.claim(dict(claim[1]), 1)
            chosen.append(claim)
            if len(chosen) > length:
                length, longest = len(chosen), tuple(chosen)
            untried.append(next_claims())
        return longest
