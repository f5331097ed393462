"""Roots that are alike get the same claims, which are computed once."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.groups import GroupPolicy
from placement_svc.domain.simulated_claims.alike_roots import units_of
from placement_svc.domain.simulated_claims.amounts import RootSuppliers, SimulatedInventories
from placement_svc.domain.simulated_claims.claiming import claim_all
from placement_svc.domain.simulated_claims.run import ClaimRun
from placement_svc.domain.simulated_claims.split_claiming import claim_all_with_splits

MOST = 10_000

TWO_AMOUNTS = (Demand("_A", (("DEVICE", 2),)), Demand("_B", (("DEVICE", 1),)))
TWO_CLASSES = (("DEVICE", 2), ("MEMORY_MB", 3))
EQUAL_AMOUNTS = (Demand("_A", TWO_CLASSES), Demand("_B", TWO_CLASSES))
OTHER_AMOUNTS = (Demand("_A", TWO_CLASSES), Demand("_B", (("DEVICE", 4), ("MEMORY_MB", 3))))
SPLIT = (Demand("", (("DEVICE", 3),)), Demand("_B", (("VCPU", 1),)))

RULES = [
    CombinationRules(TWO_AMOUNTS),
    CombinationRules(TWO_AMOUNTS, group_policy=GroupPolicy.ISOLATE),
    CombinationRules(TWO_AMOUNTS, same_subtree=(frozenset({0, 1}),)),
    CombinationRules(EQUAL_AMOUNTS),
    CombinationRules(EQUAL_AMOUNTS, group_policy=GroupPolicy.ISOLATE),
    CombinationRules(OTHER_AMOUNTS),
    CombinationRules((*EQUAL_AMOUNTS, Demand("", (("VCPU", 7),))), group_policy=GroupPolicy.ISOLATE),
    CombinationRules(SPLIT, splittable=frozenset({0})),
]


class LookupCounter(SimulatedInventories):
    """Inventories that count how often what is free is compared with amounts."""

    lookups = 0

    def times_of(self, demand: Demand, provider_id: int) -> int:
        LookupCounter.lookups += 1
        return super().times_of(demand, provider_id)


class Hosts:
    """Hosts with one child for each device amount of a model, whose ids and order by uuid are random.

    So is the memory of the children, which is from 10 to `max_memory`.
    """

    def __init__(self, models: Sequence[Sequence[int]], seed: int, max_memory: int = 10) -> None:
        drawn = random.Random(seed)
        size = sum(map(len, models)) + len(models)
        ids = iter(drawn.sample(range(1, 10 * size), size))
        self.inventories = LookupCounter()
        self.roots = []
        for amounts in models:
            root_id = next(ids)
            self._add((root_id,), "VCPU", 50)
            children = [next(ids) for _ in amounts]
            for id_, amount in zip(children, amounts, strict=True):
                self._add((root_id, id_), "DEVICE", amount)
                self._add((root_id, id_), "MEMORY_MB", drawn.randint(10, max_memory))
            drawn.shuffle(children)
            self.roots.append((root_id, tuple(children)))

    def _add(self, path: tuple[int, ...], name: str, amount: int) -> None:
        held, id_ = self.inventories, path[-1]
        held.free[id_, name], held.max_unit[id_, name] = amount, 50
        held.min_unit[id_, name] = held.step_size[id_, name] = 1
        held.paths[id_], held.traits[id_], held.uuids[id_] = path, frozenset({7}), f"{id_:08}"

    def claim(self, rules: CombinationRules, roots: Sequence[int]) -> ClaimRun:
        """Claim at some of the hosts, by number."""
        suppliers = []
        for root_id, children in (self.roots[number] for number in roots):
            of_class = {"DEVICE": children, "VCPU": (root_id,)}
            suppliers.append(
                RootSuppliers(root_id, [of_class[demand.resources[0][0]] for demand in rules.demands])
            )
        claim = claim_all_with_splits if rules.splittable else claim_all
        memory = MemoryBudget(64 * MEGABYTE)
        return claim(rules, suppliers, self.inventories, MOST, Deadline.of(60), memory)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from(RULES),
    st.integers(0, 2**32),
)
def test_hosts_get_the_claims_of_their_models(
    models: list[list[int]], rules: CombinationRules, seed: int
) -> None:
    hosts = Hosts([*models, *models, *models], seed, max_memory=13)
    numbers = range(len(hosts.roots))
    together = hosts.claim(rules, numbers)
    counts = {claims.root_id: claims.count for claims in together.claims}
    for number in numbers:
        alone = hosts.claim(rules, [number])
        root_id, children = hosts.roots[number]
        assert counts.get(root_id, 0) == sum(claims.count for claims in alone.claims)
    # Each host has used its own inventories, and the last claim is one of it.
    amount = sum(amount for demand in rules.demands for _, amount in demand.resources)
    before, free = hosts.inventories.free, together.inventories.free
    for root_id, children in hosts.roots:
        claimed = {key: before[key] - free[key] for key in before if key[0] in (root_id, *children)}
        assert sum(claimed.values()) == counts.get(root_id, 0) * amount
    assert min(free.values()) >= 0
    for claims in together.claims:
        assert any(free[key] < of_last for key, of_last in claims.last.items())
        [children] = [ids for root_id, ids in hosts.roots if root_id == claims.root_id]
        assert {id_ for id_, _ in claims.last} <= {claims.root_id, *children}
        assert sum(claims.last.values()) == amount


@pytest.mark.parametrize(
    ("amount", "children"),
    [(5, [(7, 1, 3, 1), (9, 1, 9, 1), (4, 2, 4, 2)]), (6, [(4, 1, 3, 1), (8, 3, 4, 1), (2, 5, 4, 1)])],
)
def test_hosts_whose_uuids_differ_in_order_split_amounts_in_their_own_way(
    amount: int, children: Sequence[tuple[int, int, int, int]]
) -> None:
    hosts = Hosts([], 1)
    held = hosts.inventories
    for root_id, order in ((10, (0, 1, 2)), (20, (2, 1, 0))):
        ids = [root_id + 1, root_id + 2, root_id + 3]
        for id_, number, (free, min_unit, max_unit, step_size) in zip(ids, order, children, strict=True):
            hosts._add((root_id, id_), "DEVICE", free)
            key = id_, "DEVICE"
            held.min_unit[key], held.max_unit[key], held.step_size[key] = min_unit, max_unit, step_size
            held.uuids[id_] = f"{root_id}-{number}"
        hosts.roots.append((root_id, tuple(ids)))
    rules = CombinationRules((Demand("", (("DEVICE", amount),)),), splittable=frozenset({0}))
    alone = [claims for number in (0, 1) for claims in hosts.claim(rules, [number]).claims]
    together = hosts.claim(rules, [0, 1]).claims
    assert [each.count for each in together] == [each.count for each in alone]
    assert alone[0].count != alone[1].count


def test_claims_of_a_model_are_computed_once() -> None:
    rules = CombinationRules(TWO_AMOUNTS, group_policy=GroupPolicy.ISOLATE)
    hosts = Hosts([(4, 3, 2, 1)] * 100, 1)
    LookupCounter.lookups = 0
    hosts.claim(rules, [0])
    once = LookupCounter.lookups
    LookupCounter.lookups = 0
    hosts.claim(rules, range(100))
    # For each host, its suppliers are tested once: for each of two demands, four children.
    assert LookupCounter.lookups <= once + 99 * 2 * 4


def test_hosts_with_other_remainders_are_computed_once() -> None:
    rules = CombinationRules(EQUAL_AMOUNTS, group_policy=GroupPolicy.ISOLATE)
    models = [(4, 6), (5, 6), (7, 5), (6, 4)]
    hosts = Hosts(models, 1, max_memory=11)
    lookups = []
    for numbers in ([0], range(len(models))):
        LookupCounter.lookups = 0
        hosts.claim(rules, numbers)
        lookups.append(LookupCounter.lookups)
    once, together = lookups
    # Both suppliers of each other host are tested once, as the demands are equal.
    assert together <= once + 3 * 2


def test_units_are_whole_resources_or_common_divisors() -> None:
    disk = Demand("", (("DISK_GB", 10),))
    same = Demand("_C", TWO_CLASSES[::-1])

    assert units_of([*EQUAL_AMOUNTS, same, disk], frozenset()) == [TWO_CLASSES, disk.resources]
    assert units_of(OTHER_AMOUNTS, frozenset()) == [(("DEVICE", 2),), (("MEMORY_MB", 3),)]
    assert units_of(EQUAL_AMOUNTS, frozenset({"DEVICE"})) == [(("DEVICE", 1),), (("MEMORY_MB", 3),)]
    assert units_of([Demand("_A", ())], frozenset()) == []
