"""Combining passes the deadline often, whatever is requested and however large the trees are."""

import gc
import itertools
import random
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from placement_svc.domain.combining import candidates as combining
from placement_svc.domain.combining import same_subtree
from placement_svc.domain.combining.candidates import Candidate, combine
from placement_svc.domain.demands import CombinationRules, Demand, SubtreeExclusion
from placement_svc.domain.errors import Invalid, PlacementError, Unavailable
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.groups import GroupPolicy

SECONDS = 1.0
"""The deadline of each test."""

OVERSHOOT = 0.5
"""The most seconds of CPU time between two checks of the deadline."""

MEMORY = 64 * MEGABYTE
"""The memory that each test may use."""

CANDIDATES = 1000
"""The most candidates that each test takes."""


def distant_deadline() -> Deadline:
    """Return a deadline for tests that must not reach it."""
    return Deadline.of(600)


class MeasuredDeadline(Deadline):
    """A deadline that records the longest CPU time between two checks."""

    def __init__(self) -> None:
        now = time.monotonic()
        super().__init__(SECONDS, now + SECONDS, None, now)
        self.longest = 0.0
        self.checked_at = time.thread_time()

    def check(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self.checked_at)
        self.checked_at = now
        super().check()


@dataclass(frozen=True)
class Tree:
    """The providers of a tree: a `ProviderLookup` in which each can supply an amount of 10."""

    paths: dict[int, tuple[int, ...]]

    def path(self, provider_id: int) -> tuple[int, ...]:
        return self.paths[provider_id]

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        return frozenset({provider_id % 7})

    def max_allocatable(self, provider_id: int, resource_class: str) -> int:
        return 10

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.paths)

    @property
    def leaves(self) -> tuple[int, ...]:
        return tuple(self.paths.keys() - {path[-2] for path in self.paths.values() if len(path) > 1})


def wide(children: int) -> Tree:
    """Return a root with children."""
    return Tree({1: (1,)} | {id_: (1, id_) for id_ in range(2, children + 2)})


def deep(levels: int) -> Tree:
    """Return a chain of providers, each the parent of the next."""
    return Tree({id_: tuple(range(1, id_ + 1)) for id_ in range(1, levels + 1)})


def groups(number: int, amount: int = 0) -> tuple[Demand, ...]:
    """Return suffixed groups for an amount of one resource class, or without resources."""
    return tuple(Demand(f"_{n}", (("VCPU", amount),) if amount else ()) for n in range(number))


def subtree_of(count: int) -> tuple[frozenset[int], ...]:
    return (frozenset(range(count)),)


@dataclass(frozen=True)
class Case:
    rules: CombinationRules
    suppliers: Sequence[Sequence[int]]
    tree: Tree

    def combine(self, deadline: Deadline, memory: MemoryBudget | None = None) -> Iterator[Candidate]:
        return combine(self.rules, self.suppliers, self.tree, deadline, memory or MemoryBudget(MEMORY))


def in_one_subtree(number: int, tree: Tree, policy: GroupPolicy = GroupPolicy.NONE) -> Case:
    """Return groups in one subtree, each of which any provider without children can supply."""
    rules = CombinationRules(groups(number), same_subtree=subtree_of(number), group_policy=policy)
    return Case(rules, [tree.leaves] * number, tree)


def with_own_suppliers(case: Case) -> Case:
    """Return the same case, with a copy of the suppliers for each demand."""
    return Case(case.rules, [list(ids) for ids in case.suppliers], case.tree)


def apart(number: int, tree: Tree) -> Case:
    """Return groups in one subtree, whose suppliers have only the root in common."""
    half = len(tree.leaves) // 2
    suppliers = [tree.leaves[:half] if n % 2 else tree.leaves[half:] for n in range(number)]
    return Case(in_one_subtree(number, tree).rules, suppliers, tree)


def isolated(number: int, tree: Tree, suppliers: Sequence[int]) -> Case:
    rules = CombinationRules(groups(number), group_policy=GroupPolicy.ISOLATE)
    return Case(rules, [suppliers] * number, tree)


def half_isolated(number: int, tree: Tree, suppliers: Sequence[int]) -> Case:
    rules = CombinationRules(groups(number), isolate=frozenset(range(0, number, 2)))
    return Case(rules, [suppliers] * number, tree)


def excluded(number: int, tree: Tree, *, can_be_outside: bool) -> Case:
    """Return groups in one subtree, and as many that any provider, or none, can supply outside of it."""
    half = frozenset(range(0, number, 2))
    exclusion = SubtreeExclusion(half, frozenset(range(number)) - half)
    rules = CombinationRules(groups(number), same_subtree=(half,), subtree_exclusions=(exclusion,))
    inside = tree.leaves if can_be_outside else tree.ids[:1]
    return Case(rules, [tree.leaves if n % 2 else inside for n in range(number)], tree)


def summed(number: int, tree: Tree, amount: int) -> Case:
    """Return groups of which a provider can supply only some."""
    return Case(CombinationRules(groups(number, amount)), [tree.leaves] * number, tree)


def required(number: int, tree: Tree) -> Case:
    """Return resource classes of the unsuffixed group, of which no provider has the required traits."""
    demands = tuple(Demand("", ((f"CLASS_{n}", 1),)) for n in range(number))
    rules = CombinationRules(demands, unsuffixed_required=tuple(frozenset({n, 99}) for n in range(number)))
    return Case(rules, [tree.leaves] * number, tree)


def cases(groups_: int, width: int, depth: int) -> dict[str, Case]:
    one, chain = wide(width), deep(depth)
    pairs = tuple(frozenset(pair) for pair in itertools.combinations(range(groups_), 2))[:500]
    return {
        "in one subtree": in_one_subtree(groups_, one),
        "in one subtree, own suppliers": with_own_suppliers(in_one_subtree(groups_, one)),
        "isolated in one subtree": in_one_subtree(groups_, one, GroupPolicy.ISOLATE),
        "apart": apart(groups_, one),
        "in one of many subtrees": Case(
            CombinationRules(groups(groups_), same_subtree=pairs), [one.leaves] * groups_, one
        ),
        "in a chain": Case(in_one_subtree(groups_, chain).rules, [chain.ids] * groups_, chain),
        "isolated in a chain": Case(
            in_one_subtree(groups_, chain, GroupPolicy.ISOLATE).rules, [chain.ids] * groups_, chain
        ),
        "isolated": isolated(groups_, one, one.leaves),
        "isolated, own suppliers": with_own_suppliers(isolated(groups_, one, one.leaves)),
        "half isolated": half_isolated(groups_, one, one.leaves),
        "half isolated, too few": half_isolated(groups_, one, one.leaves[: groups_ // 2]),
        "excluded from a subtree": excluded(groups_, one, can_be_outside=True),
        "excluded from the whole tree": excluded(groups_, one, can_be_outside=False),
        "isolated, too few": isolated(groups_, one, one.leaves[: groups_ - 1]),
        "summed": summed(groups_, one, 3),
        "summed, own suppliers": with_own_suppliers(summed(groups_, one, 3)),
        "summed, too few": summed(groups_, wide(groups_ // 2), 6),
        "traits": required(min(groups_, 60), one),
        "no constraint": Case(CombinationRules(groups(2)), [one.ids] * 2, one),
    }


MODERATE = cases(28, 2000, 300)


@pytest.mark.parametrize("case", MODERATE.values(), ids=MODERATE)
def test_deadline_is_checked_often(case: Case) -> None:
    check(case)


@pytest.mark.long
@pytest.mark.parametrize("name", MODERATE)
def test_deadline_is_checked_often_in_large_trees(name: str) -> None:
    check(cases(500, 10_000, 2000)[name])


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    """The garbage of all other tests of the process would be collected, and its time counted."""
    gc.disable()
    yield
    gc.enable()


def check(case: Case) -> None:
    started = time.thread_time()
    deadline = MeasuredDeadline()
    try:
        for _ in itertools.islice(case.combine(deadline), CANDIDATES):
            pass
    except PlacementError:
        pass
    ended = time.thread_time()
    assert max(deadline.longest, ended - deadline.checked_at) < OVERSHOOT
    assert ended - started < SECONDS + OVERSHOOT


@pytest.mark.parametrize("policy", GroupPolicy)
def test_groups_in_one_subtree_cost_no_more_than_their_candidates(policy: GroupPolicy) -> None:
    # Only the same child can supply all groups. Trying all 2000 children for each of 28 groups would need
    # 56,000 steps for each candidate.
    checks = 0

    class CountedDeadline(MeasuredDeadline):
        def check(self) -> None:
            nonlocal checks
            checks += 1

    case = in_one_subtree(28, wide(2000), policy)
    found = list(case.combine(CountedDeadline()))
    assert found == ([(id_,) * 28 for id_ in case.tree.leaves] if policy is GroupPolicy.NONE else [])
    assert checks < 2000 * 28 * 2


def test_groups_whose_suppliers_are_apart_fail_at_once() -> None:
    assert list(apart(500, wide(2000)).combine(distant_deadline())) == []


def test_deadline_ends_endless_combining() -> None:
    case = Case(CombinationRules(groups(20)), [wide(100).ids] * 20, wide(100))
    with pytest.raises(Unavailable, match="takes longer than 1 second:"):
        for _ in case.combine(MeasuredDeadline()):
            pass


def test_failed_states_need_no_more_memory_than_allowed() -> None:
    # Whichever providers the first groups use: none can supply the last group.
    tree = wide(20)
    rules = CombinationRules((*groups(10, 4), Demand("_last", (("VCPU", 11),))))
    case = Case(rules, [tree.leaves] * 11, tree)
    budget = MemoryBudget(MEGABYTE)
    tracemalloc.start()
    try:
        with pytest.raises(PlacementError):
            list(case.combine(MeasuredDeadline(), budget))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * MEGABYTE
    assert budget.reserved == 0


def test_isolated_groups_in_too_small_subtrees_fail_at_once() -> None:
    # Only two different leaves could supply the last two groups, and they are in no common subtree.
    tree = wide(300)
    rules = CombinationRules(
        groups(300), same_subtree=(frozenset({298, 299}),), group_policy=GroupPolicy.ISOLATE
    )
    assert list(Case(rules, [tree.leaves] * 300, tree).combine(distant_deadline())) == []


def test_search_that_needs_too_much_memory_is_refused() -> None:
    case = isolated(30, wide(40), wide(40).leaves)
    with pytest.raises(Invalid, match="MB of memory: ask for fewer groups"):
        next(case.combine(distant_deadline(), MemoryBudget(2048)))


def test_memory_of_an_unfinished_search_is_released() -> None:
    budget = MemoryBudget(MEMORY)
    candidates = isolated(3, wide(40), wide(40).leaves).combine(distant_deadline(), budget)
    next(candidates)
    assert budget.reserved > 0
    del candidates
    assert budget.reserved == 0


@pytest.mark.parametrize("max_unprepared", [0, 10**9])
def test_subtrees_are_those_of_all_combinations(max_unprepared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_subtree, "MAX_UNPREPARED_SUPPLIERS", max_unprepared)
    monkeypatch.setattr(same_subtree, "MIN_INDEXED_SUPPLIERS", 2)
    rng = random.Random(1)
    for _ in range(500):
        paths: dict[int, tuple[int, ...]] = {1: (1,)}
        for id_ in range(2, rng.randint(2, 9)):
            parent = rng.choice([None, *paths])
            paths[id_] = (*(paths[parent] if parent else ()), id_)
        demands = rng.randint(2, 4)
        suppliers = [tuple(rng.sample(list(paths), rng.randint(1, len(paths)))) for _ in range(demands)]
        subtree = frozenset(rng.sample(range(demands), rng.randint(2, demands)))
        policy = rng.choice(list(GroupPolicy))
        rules = CombinationRules(groups(demands), same_subtree=(subtree,), group_policy=policy)
        found = list(Case(rules, suppliers, Tree(paths)).combine(distant_deadline()))
        expected = [
            each
            for each in itertools.product(*suppliers)
            if any(all(each[head] in paths[each[other]] for other in subtree) for head in subtree)
            and (policy is GroupPolicy.NONE or len(set(each)) == demands)
        ]
        assert len(found) == len(set(found))
        assert set(found) == set(expected)


def test_only_candidate_in_a_subtree_is_found_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two NUMA nodes has a network card, and the other one has a disk."""

    def refuse(*_: object) -> None:
        raise AssertionError("the tree is searched")

    monkeypatch.setattr(combining, "_combine_constrained", refuse)
    tree = Tree({1: (1,), 2: (1, 2), 3: (1, 3), 4: (1, 3, 4), 5: (1, 2, 5)})
    rules = CombinationRules(groups(2), same_subtree=(frozenset({0, 1}),))
    assert list(Case(rules, [(2, 3), (4,)], tree).combine(distant_deadline())) == [(3, 4)]
    rules = CombinationRules(groups(3), same_subtree=(frozenset({0, 1}), frozenset({0, 2})))
    assert list(Case(rules, [(2, 3), (4,), (5,)], tree).combine(distant_deadline())) == []
