"""Ordering the candidates of a tree checks the deadline often."""

from dataclasses import dataclass
from typing import Any

import pytest

from placement_svc.domain.combining.candidates import combine_around
from placement_svc.domain.combining.interfaces import TreeSuppliers
from placement_svc.domain.combining.ordered_candidates import ordered_candidates
from placement_svc.domain.combining.ordering import Ordering, SupplierFacts, best_rank
from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.groups import GroupPolicy, OrderBy, OrderMethod
from placement_svc.domain.simulated_claims.amounts import SimulatedInventories

CHILDREN = 2000
GROUPS = 50

MOST_LOOKUPS = 1000
"""The most lookups of free amounts between two checks of the deadline."""


@dataclass
class CountingDeadline(Deadline):
    """A deadline that does not pass, and records the most lookups between two checks."""

    lookups: int = 0
    most: int = 0

    def check(self) -> None:
        self.most = max(self.most, self.lookups)
        self.lookups = 0


class CountedAmounts(dict[int, int]):
    """Free amounts that count lookups."""

    def __init__(self, amounts: dict[int, int], deadline: CountingDeadline) -> None:
        super().__init__(amounts)
        self._deadline = deadline

    def __getitem__(self, key: int) -> int:
        self._deadline.lookups += 1
        return super().__getitem__(key)


@dataclass
class CheckCounter(CountingDeadline):
    """A deadline that counts its checks."""

    checks: int = 0

    def check(self) -> None:
        self.checks += 1


@pytest.mark.parametrize("preferred", [frozenset[int](), frozenset({1, 2, 3})])
@pytest.mark.parametrize("demand_count", [6, 7])
def test_ranks_without_candidates_are_not_searched(preferred: frozenset[int], demand_count: int) -> None:
    """Six isolated groups fit on six children in one way for each order, and seven do not fit."""
    ids = range(2, 8)
    rules = CombinationRules(
        (Demand("", (("OTHER", 1),)), *(Demand(f"_{n}", (("CLASS", 1),)) for n in range(demand_count))),
        group_policy=GroupPolicy.ISOLATE,
    )
    ordering = Ordering.of(rules, preferred, OrderBy(OrderMethod.PACK, "CLASS"))
    assert ordering is not None
    facts = SupplierFacts(
        free={id_: id_ for id_ in ids},
        preferred={id_: frozenset({id_ % 4}) & preferred for id_ in ids},
        tie_breakers={id_: f"{id_:08}" for id_ in (1, *ids)},
    )
    lookup: Any = SimulatedInventories(
        traits={id_: facts.preferred[id_] for id_ in ids}, paths={id_: (1, id_) for id_ in ids}
    )
    deadline = CheckCounter(3600, 0, None, 0)
    suppliers = [list(ids) for _ in rules.demands]
    tree = TreeSuppliers(1, rules, suppliers, lookup, deadline, MemoryBudget(64 * MEGABYTE))
    first = next(combine_around(tree), None)
    unordered, deadline.checks = deadline.checks, 0
    best = best_rank(ordering, facts, suppliers, deadline)
    ranked = next(ordered_candidates(ordering, facts, tree, best), None)
    assert (ranked is None) == (first is None) == (demand_count == 7)
    # Each set of preferred traits and each amount would be searched like the whole.
    assert deadline.checks <= 4 * unordered + 150


@pytest.mark.parametrize("alike", [True, False])
def test_free_amounts_of_many_groups(alike: bool) -> None:
    ids = range(2, CHILDREN + 2)
    deadline = CountingDeadline(3600, 0, None, 0)
    rules = CombinationRules(tuple(Demand(f"_{n}", (("CLASS", 1),)) for n in range(GROUPS)))
    ordering = Ordering.of(rules, frozenset(), OrderBy(OrderMethod.PACK, "CLASS"))
    assert ordering is not None
    facts = SupplierFacts(
        free=CountedAmounts({id_: 9 + id_ % 2 for id_ in ids}, deadline),
        tie_breakers={id_: f"{id_:08}" for id_ in (1, *ids)},
    )
    lookup: Any = SimulatedInventories(
        free={(id_, "CLASS"): 9 for id_ in ids},
        max_unit={(id_, "CLASS"): 9 for id_ in ids},
        paths={id_: (1, id_) for id_ in ids},
    )
    suppliers = [ids if alike else list(ids) for _ in range(GROUPS)]
    tree = TreeSuppliers(1, rules, suppliers, lookup, deadline, MemoryBudget(64 * MEGABYTE))
    best = best_rank(ordering, facts, suppliers, deadline)
    rank, candidate = next(ordered_candidates(ordering, facts, tree, best))
    assert rank == (0, 9)
    assert len(candidate) == GROUPS
    assert deadline.most < MOST_LOOKUPS
