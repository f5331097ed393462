"""A run of simulated claims: its result, and what all runs have in common (`docs/spec/extensions.md 4`)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.simulated_claims.alike_roots import AlikeRoots
from placement_svc.domain.simulated_claims.amounts import RootClaims, RootSuppliers, SimulatedInventories
from placement_svc.domain.simulated_claims.most_claims import MostClaims, connected_roots


@dataclass(frozen=True)
class ClaimRun:
    """Claims until no candidate is left, or until their maximum number is reached.

    `claims` has the roots with claims, in their order. `is_exact` means that no other choice of candidates
    gives more claims. `inventories` are those after all claims.
    """

    claims: Sequence[RootClaims]
    is_exact: bool
    inventories: SimulatedInventories


class Claimer(ABC):
    """One run of claims of a request at each of its roots, in their order."""

    def __init__(
        self,
        rules: CombinationRules,
        roots: Sequence[RootSuppliers],
        inventories: SimulatedInventories,
        max_claims: int,
        deadline: Deadline,
        memory: MemoryBudget,
    ) -> None:
        self._rules = rules
        self._roots = roots
        self._initial = inventories
        self._inventories = inventories.copy()
        self._remaining = max_claims
        self._deadline = deadline
        self._memory = memory
        self._most = MostClaims(rules, inventories, deadline, memory)
        self._alike = AlikeRoots(rules, self._inventories, deadline)
        self._claims: dict[int, RootClaims] = {}
        self._is_exact = True

    def run(self) -> ClaimRun:
        """Return the claims of all roots."""
        connected = connected_roots(self._roots, self._initial, self._deadline)
        self._claim_roots(connected, {roots[0].id for roots in connected if len(roots) == 1})
        claims = [self._claims[root.id] for root in self._roots if root.id in self._claims]
        return ClaimRun(claims, self._is_exact, self._inventories)

    @abstractmethod
    def _claim_roots(self, connected: Sequence[Sequence[RootSuppliers]], alone: Collection[int]) -> None:
        """Claim at each root as often as possible.

        `connected` has the roots that share suppliers, and `alone` the ids of those that share none.
        """

    def _claims_at(self, roots: Sequence[RootSuppliers]) -> int:
        """Return the number of claims that these roots have got so far."""
        return sum(self._claims[root.id].count for root in roots if root.id in self._claims)
