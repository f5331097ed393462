"""Simulated claims check the deadline often, whatever is requested and however large the trees are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.groups import GroupPolicy
from placement_svc.domain.simulated_claims.amounts import RootSuppliers, SimulatedInventories
from placement_svc.domain.simulated_claims.claiming import claim_all
from placement_svc.domain.simulated_claims.split_claiming import claim_all_with_splits

CHILDREN = 2000
"""The children of the only root."""

GROUPS = 50

MOST_LOOKUPS = 1000
"""The most lookups of suppliers between two checks of the deadline."""

UNSUFFIXED = Demand("", (("CLASS", 1),))


@dataclass
class CountingDeadline(Deadline):
    """A deadline that does not pass, and records the most lookups of suppliers between two checks."""

    lookups: int = 0
    most: int = 0
    total: int = 0

    def check(self) -> None:
        self.most = max(self.most, self.lookups)
        self.lookups = 0

    def count(self) -> None:
        """Count a lookup."""
        self.lookups += 1
        self.total += 1


@dataclass
class CountedInventories(SimulatedInventories):
    """Inventories that count lookups."""

    deadline: CountingDeadline = field(default_factory=lambda: CountingDeadline(3600, 0, None, 0))

    def times_of(self, demand: Demand, provider_id: int) -> int:
        self.deadline.count()
        return super().times_of(demand, provider_id)

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        self.deadline.count()
        return super().trait_ids(provider_id)


def inventories() -> CountedInventories:
    """Return those of a root's children: each has one trait, and enough for one group."""
    ids = range(2, CHILDREN + 2)
    keys = [(id_, name) for id_ in ids for name in ("CLASS", "SPLIT")]
    return CountedInventories(
        free={key: GROUPS if key[1] == "CLASS" else 1 for key in keys},
        max_unit=dict.fromkeys(keys, GROUPS),
        paths={1: (1,)} | {id_: (1, id_) for id_ in ids},
        traits=dict.fromkeys(ids, frozenset({7})),
        uuids={id_: f"{id_:08}" for id_ in ids},
        min_unit=dict.fromkeys(keys, 1),
        step_size=dict.fromkeys(keys, 1),
    )


def groups(*, alike: bool) -> tuple[Demand, ...]:
    """Return suffixed groups, which request the same amount or different ones of a class."""
    return tuple(Demand(f"_{n}", (("CLASS", 1 if alike else n + 1),)) for n in range(GROUPS))


@pytest.mark.parametrize("policy", GroupPolicy)
@pytest.mark.parametrize("alike", [True, False])
def test_suppliers_of_many_groups(policy: GroupPolicy, alike: bool) -> None:
    held = inventories()
    rules = CombinationRules(groups(alike=alike), group_policy=policy)
    run(held, rules, [2 + n for n in range(CHILDREN)], alike=alike)
    assert held.deadline.most < MOST_LOOKUPS


def test_equal_groups_share_the_lookups_of_their_suppliers() -> None:
    held = inventories()
    rules = CombinationRules(groups(alike=True), group_policy=GroupPolicy.ISOLATE)
    run(held, rules, [2 + n for n in range(CHILDREN)], alike=True)
    once = inventories()
    run(once, CombinationRules(groups(alike=True)[:1]), [2 + n for n in range(CHILDREN)], alike=True)
    # One claim of all groups, and the search for a second one. Bounds look at each group.
    assert held.deadline.total < (GROUPS + 10) * once.deadline.total


def test_required_traits_of_many_clauses() -> None:
    held = inventories()
    rules = CombinationRules(
        (UNSUFFIXED,), unsuffixed_required=tuple(frozenset({7, 100 + n}) for n in range(GROUPS))
    )
    run(held, rules, [2 + n for n in range(CHILDREN)], alike=True)
    assert held.deadline.most < MOST_LOOKUPS


def test_suppliers_of_many_groups_and_a_split_class() -> None:
    held = inventories()
    rules = CombinationRules((Demand("", (("SPLIT", 3),)), *groups(alike=False)), splittable=frozenset({0}))
    run(held, rules, [2 + n for n in range(CHILDREN)], alike=False)
    assert held.deadline.most < MOST_LOOKUPS


def run(held: CountedInventories, rules: CombinationRules, ids: Sequence[int], *, alike: bool) -> None:
    """Claim at one root once, with one list of suppliers for all demands or one for each."""
    root = RootSuppliers(1, [ids if alike else list(ids) for _ in rules.demands])
    claim = claim_all_with_splits if rules.splittable else claim_all
    claim(rules, [root], held, 1, held.deadline, MemoryBudget(64 * MEGABYTE))
    held.deadline.check()
