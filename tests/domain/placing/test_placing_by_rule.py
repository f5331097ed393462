"""Each consumer of a placement group gets the best of all candidates around all roots."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_svc.domain.combining.candidates import Candidate, combine_around
from placement_svc.domain.combining.ordered_candidates import TreeSuppliers
from placement_svc.domain.combining.ordering import Ordering, SupplierFacts
from placement_svc.domain.combining.split_suppliers import SplitSupplier, SupplierPart, provider_ids_of
from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.groups import GroupPolicy, OrderBy, OrderMethod
from placement_svc.domain.placement_groups import POLICIES, Occupancy, PlacementGroup
from placement_svc.domain.placing.placer import Placer
from placement_svc.domain.placing.ranked_order import RankedOrder
from placement_svc.domain.placing.rule import RuleRank
from placement_svc.domain.placing.tree_orders import Key, Rotation, TreeOrder
from placement_svc.domain.simulated_claims.amounts import RootSuppliers, SimulatedInventories
from tests.conftest import examples

ROOTS = range(1, 5)
DISK = "DISK_GB"
MEMORY = 1 << 24


class Rule:
    """The policy of a group with so many domains, which may be the roots."""

    ranks_roots = True
    tries_domains = False
    favored_ids = ()

    def __init__(self, policy: str, domain_count: int) -> None:
        self.domain_count = domain_count
        self.asked = 0
        """The number of calls of `rank`."""
        most = 1 if policy.endswith("anti-affinity") else None
        self.group = PlacementGroup("group", policy, most, None)
        self.occupancy = Occupancy(self.group)

    def rank(self, root_ids: frozenset[int]) -> RuleRank | None:
        self.asked += 1
        domains = set(map(self.domain, root_ids))
        if self.group.is_soft:
            return self.occupancy.rank(domains)
        return () if self.occupancy.allows(domains) else None

    def domain(self, root_id: int) -> str:
        return str(root_id % self.domain_count)

    def best_unread(self) -> RuleRank | None:
        raise NotImplementedError

    def levels(self, root_ids: Iterable[int]) -> Iterator[tuple[RuleRank, Sequence[frozenset[int]]]]:
        roots = defaultdict[str | None, list[int]](list)
        for root_id in root_ids:
            roots[self.domain(root_id)].append(root_id)
        hard = [((), self.occupancy.keeping_sets(roots))]
        for rank, sets in self.occupancy.levels(roots) if self.group.is_soft else hard:
            yield rank, [frozenset(id_ for domain in each for id_ in roots[domain]) for each in sets]

    def record(self, root_ids: frozenset[int]) -> Collection[int]:
        self.occupancy.add(set(map(self.domain, root_ids)))
        return ROOTS

    def begin_run(self, root_ids: frozenset[int]) -> Collection[int]:
        raise NotImplementedError

    def end_run(self) -> None:
        raise NotImplementedError


@st.composite
def clouds(draw: st.DrawFn) -> tuple[SimulatedInventories, set[int], dict[int, list[int]]]:
    """Draw the inventories of roots and their children, those that share, and the suppliers of each root."""
    inventories = SimulatedInventories()
    sharing = set()
    suppliers: dict[int, list[int]] = {root: [] for root in ROOTS}
    for root in ROOTS:
        for id_ in (root, 10 * root, 10 * root + 1):
            inventories.paths[id_] = (root,) if id_ == root else (root, id_)
            inventories.traits[id_] = frozenset()
            inventories.uuids[id_] = f"{id_ * 37 % 101:03}"
            free = draw(st.sampled_from([0, 2, 3, 5]))
            if not free:
                continue
            inventories.free[id_, DISK] = inventories.max_unit[id_, DISK] = free
            inventories.min_unit[id_, DISK] = inventories.step_size[id_, DISK] = 1
            suppliers[root].append(id_)
            if draw(st.booleans()):
                sharing.add(id_)
                for served in draw(st.frozensets(st.sampled_from(ROOTS), max_size=2)) - {root}:
                    suppliers[served].append(id_)
    return inventories, sharing, suppliers


@st.composite
def rules(draw: st.DrawFn) -> CombinationRules:
    """Draw two or three demands for one class; sometimes several providers may supply the first one."""
    is_splittable = draw(st.booleans())
    suffixes = ["" if is_splittable else "0", "1", "2"][: draw(st.integers(2, 3))]
    amounts = [draw(st.integers(1, 3)) + 3 * (is_splittable and not suffix) for suffix in suffixes]
    return CombinationRules(
        tuple(Demand(suffix, ((DISK, amount),)) for suffix, amount in zip(suffixes, amounts, strict=True)),
        group_policy=draw(st.sampled_from([GroupPolicy.NONE, GroupPolicy.ISOLATE])),
        splittable=frozenset([0] * is_splittable),
    )


def order_of(method: OrderMethod | None, rules: CombinationRules, held: SimulatedInventories) -> TreeOrder:
    deadline, memory = Deadline.of(60), MemoryBudget(MEMORY)
    if method is None:
        return Rotation(
            lambda root: combine_around(TreeSuppliers(root.id, rules, root.suppliers, held, deadline, memory))
        )
    ordering = Ordering.of(rules, frozenset(), OrderBy(method, DISK))
    assert ordering is not None
    free = {id_: amount for (id_, _), amount in held.free.items()}
    return RankedOrder(
        ordering,
        SupplierFacts(free=free, tie_breakers=held.uuids),
        held.uuids.__getitem__,
        lambda root: TreeSuppliers(root.id, rules, root.suppliers, held, deadline, memory),
        may_split=bool(rules.splittable),
    )


Parts = tuple[tuple[SupplierPart, ...], ...]


def parts_of(candidate: Candidate) -> Parts:
    """Return the same for equal candidates; two splits with the same parts are different numbers."""
    return tuple(
        each.parts if isinstance(each, SplitSupplier) else (SupplierPart(each, 0),) for each in candidate
    )


def all_candidates(
    roots: Sequence[RootSuppliers],
    rules: CombinationRules,
    inventories: SimulatedInventories,
    sharing: set[int],
    rule: Rule,
    order: TreeOrder,
) -> dict[Parts, tuple[RuleRank, Key]]:
    """Return all candidates that the rule allows, with the best rank and key around any root."""
    found: dict[Parts, tuple[RuleRank, Key]] = {}
    for root in roots:
        usable = [
            [
                id_
                for id_ in ids
                if number in rules.splittable or inventories.free[id_, DISK] >= demand.resources[0][1]
            ]
            for number, (demand, ids) in enumerate(zip(rules.demands, root.suppliers, strict=True))
        ]
        for key, candidate in order.candidates(RootSuppliers(root.id, usable)):
            ids = {id_ for supplier in candidate for id_ in provider_ids_of(supplier)}
            rank = rule.rank(frozenset(inventories.paths[id_][0] for id_ in ids - sharing or ids))
            if rank is not None:
                parts = parts_of(candidate)
                found[parts] = min(found.get(parts, (rank, key)), (rank, key))
    return found


@settings(max_examples=examples(300), deadline=None)
@given(
    cloud=clouds(),
    rules=rules(),
    policy=st.sampled_from(POLICIES),
    domain_count=st.sampled_from([2, len(ROOTS)]),
    method=st.sampled_from([None, OrderMethod.SPREAD, OrderMethod.PACK]),
)
def test_each_consumer_gets_the_best_of_all_candidates(
    cloud: tuple[SimulatedInventories, set[int], dict[int, list[int]]],
    rules: CombinationRules,
    policy: str,
    domain_count: int,
    method: OrderMethod | None,
) -> None:
    inventories, sharing, suppliers = cloud
    roots = [RootSuppliers(root, [ids] * len(rules.demands)) for root, ids in suppliers.items() if ids]
    rule, order = Rule(policy, domain_count), order_of(method, rules, inventories)
    placer = Placer(
        rules,
        inventories,
        sharing_ids=sharing,
        order=order,
        rule=rule,
        deadline=Deadline.of(60),
        memory=MemoryBudget(MEMORY),
    )
    placer.add(roots)
    is_placed = True
    while is_placed:
        possible = all_candidates(roots, rules, inventories, sharing, rule, order)
        placed = placer.place(None)
        is_placed = placed is not None
        assert is_placed is bool(possible)
        if placed is not None:
            assert possible[parts_of(placed.candidate)] == min(possible.values())


def placer_of(free: Mapping[int, int], rule: Rule, method: OrderMethod | None) -> Placer:
    """Return a placer of one disk at roots without children; `free` has their amounts by id."""
    rules = CombinationRules((Demand("1", ((DISK, 1),)),), group_policy=GroupPolicy.NONE)
    inventories = SimulatedInventories()
    for root_id, amount in free.items():
        inventories.paths[root_id] = (root_id,)
        inventories.traits[root_id] = frozenset()
        inventories.uuids[root_id] = f"{root_id:03}"
        inventories.free[root_id, DISK] = inventories.max_unit[root_id, DISK] = amount
        inventories.min_unit[root_id, DISK] = inventories.step_size[root_id, DISK] = 1
    placer = Placer(
        rules,
        inventories,
        sharing_ids=(),
        order=order_of(method, rules, inventories),
        rule=rule,
        deadline=Deadline.of(60),
        memory=MemoryBudget(MEMORY),
    )
    placer.add([RootSuppliers(root_id, [[root_id]]) for root_id in free])
    return placer


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("method", [None, OrderMethod.SPREAD, OrderMethod.PACK])
def test_a_placement_does_not_examine_all_trees_of_its_domain(
    policy: str, method: OrderMethod | None
) -> None:
    consumer_count = 30
    root_ids = range(1, 121)
    rule = Rule(policy, domain_count=3)
    placer = placer_of(dict.fromkeys(root_ids, 30), rule, method)
    placed = sum(placer.place(None) is not None for _ in range(consumer_count))
    assert placed == (3 if policy == "anti-affinity" else consumer_count)
    assert rule.asked < 10 * consumer_count + len(root_ids)


@pytest.mark.parametrize("method", [None, OrderMethod.SPREAD, OrderMethod.PACK])
def test_a_better_domain_moves_in_the_order_without_its_trees(
    method: OrderMethod | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer_count = 20
    rule = Rule("soft-affinity", domain_count=2)
    root_ids = range(1, 101)
    # The domain without free amounts has more members throughout.
    for _ in range(consumer_count):
        rule.occupancy.add(["0"])

    def record(placed_ids: frozenset[int]) -> Collection[int]:
        rule.occupancy.add(list(map(rule.domain, placed_ids)))
        return root_ids

    monkeypatch.setattr(rule, "record", record)
    placer = placer_of({root_id: 30 * (root_id % 2) for root_id in root_ids}, rule, method)
    pushed = 0
    push = Placer._push

    def push_counted(*args: object) -> None:
        nonlocal pushed
        pushed += 1
        push(*args)

    monkeypatch.setattr(Placer, "_push", push_counted)
    assert all(placer.place(None) for _ in range(consumer_count))
    assert pushed <= 2 * consumer_count
