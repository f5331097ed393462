"""The work of an explanation for large requests, large trees and many sharing providers, and its deadline."""

import sys
from collections.abc import Iterable
from fractions import Fraction
from types import FrameType
from typing import Any

import pytest

from placement_svc.db.connections.engine import Database
from placement_svc.db.explanation.amount_search import AmountSearch
from placement_svc.db.explanation.cloud import Cloud, EqualRoots, Node, Scope, read_cloud
from placement_svc.db.explanation.combinations import Combinations
from placement_svc.db.explanation.counts import Counts, RootCounts
from placement_svc.db.explanation.details import ExplainedProvider
from placement_svc.db.explanation.explain import ExplainedRequest, ExplanationOptions, explain
from placement_svc.db.explanation.layout import Layout
from placement_svc.db.explanation.patterns import number_conditions
from placement_svc.db.explanation.trees import EqualRootsTree
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.combining.candidates import Candidate
from placement_svc.domain.errors import Unavailable
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import (
    AMOUNT_CODES,
    AmountCondition,
    Filter,
    GroupFilters,
    QueryTexts,
    RequestFilters,
)
from placement_svc.domain.explanation.root_tests import GroupTest, GroupTests
from placement_svc.domain.explanation.supplier_tests import DemandTest, RootPattern
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from tests.conftest import Api, LoadCloud
from tests.support.cloud import read

SHARING = 40
"""Sharing providers that serve each other: each is a group of roots of its own."""

GROUPS = 4


def explained() -> ExplainedRequest:
    groups = tuple(RequestGroup(f"_{number}", {"DISK_GB": 100 + number}) for number in range(GROUPS))
    return ExplainedRequest(request=CandidatesRequest(groups), texts=QueryTexts(groups={}), relaxes=False)


def options(deadline: Deadline) -> ExplanationOptions:
    return ExplanationOptions(
        search=SearchOptions(deadline=deadline, memory=MemoryBudget(10**8)), max_roots=100
    )


def test_gap_of_each_sharing_provider_is_computed_once(
    database: Database, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("; ".join(f"s{n}{{DISK_GB{n + 1}}}$@a" for n in range(SHARING))))
    computed = 0
    gap = ExplainedProvider.gap

    def counted(self: ExplainedProvider, failing: Iterable[Filter]) -> Fraction:
        nonlocal computed
        computed += 1
        return gap(self, failing)

    monkeypatch.setattr(ExplainedProvider, "gap", counted)
    body = database.read(explain, explained(), options(Deadline.of(3600)))

    assert len(body["nearest"]) == 10
    # Once to choose the roots, and once for each of the ten that are shown.
    assert computed <= 11 * GROUPS * (SHARING + 1)


def test_search_for_the_nearest_roots_ends_at_the_deadline(
    database: Database, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("; ".join(f"s{n}{{DISK_GB{n + 1}}}$@a" for n in range(3))))
    deadline = Deadline.of(3600)
    gap = ExplainedProvider.gap

    def late(self: ExplainedProvider, failing: Iterable[Filter]) -> Fraction:
        deadline.end = deadline.next_event = 0.0
        return gap(self, failing)

    monkeypatch.setattr(ExplainedProvider, "gap", late)
    with pytest.raises(Unavailable, match="takes longer"):
        database.read(explain, explained(), options(deadline))


def test_few_combinations_show_which_roots_have_suppliers(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = "; ".join(f"c{n}<h{{VCPU8}}" for n in range(14))
    pools = "; ".join(f"s{n}{{VCPU8}}$@a" for n in range(SHARING))
    load_cloud(read(f"h@a; {children}; {pools}; full{{VCPU8 used8}}$@a"))
    combined = 0
    first_candidate = Combinations.first_candidate

    def counted(self: Combinations, *args: Any) -> Candidate | None:
        nonlocal combined
        combined += 1
        return first_candidate(self, *args)

    monkeypatch.setattr(Combinations, "first_candidate", counted)
    groups = "&".join(f"resources{number}=VCPU:1" for number in range(18))
    path = f"/allocation_candidates/explanation?relaxations=0&group_policy=isolate&{groups}"
    body = api("GET", path).json

    # Those of the host and of each pool, but not those of the pool in use.
    assert body["roots"]["returned"] == 1 + SHARING
    # Each group of roots is combined once for the counts, and about once for the suppliers.
    assert combined <= 3 * (2 + SHARING)


def counts_of_classes(number: int) -> tuple[list[Counts], int]:
    """Return the counts of so many classes that one host has but for one unit, and the calls for them."""
    filters = tuple(
        Filter(code, f"resources=C{n}:1", AmountCondition(code, n, 1), resource_class=f"C{n}", wanted=1)
        for code in AMOUNT_CODES
        for n in range(number)
    )
    bits = number_conditions(each.condition for each in filters)
    pattern = sum(1 << bits[each.condition] for each in filters[:-1])
    root = EqualRoots(RootPattern(pattern, (pattern,), ()), (Node(pattern, 1, ()),), frozenset(), (1,))
    cloud = Cloud(Scope(), Layout(bits), (root,), ())
    request = RequestFilters((GroupFilters("", filters),), (), ())
    counts = RootCounts(cloud, request, Deadline.of(3600), MemoryBudget(10**6))
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return counts.of_group(0), calls
    finally:
        sys.setprofile(before)


def test_calls_for_counts_grow_with_the_square_of_the_classes() -> None:
    _, few = counts_of_classes(10)
    counts, many = counts_of_classes(40)

    assert [each.left for each in counts] == [1] * 159 + [0]
    assert [each.sole_blocker for each in counts] == [0] * 159 + [1]
    # The number of tests, and that of the classes in each, are four times as large.
    assert many <= 4**2 * few


def test_tests_of_a_group_share_equal_tests_of_suppliers(monkeypatch: pytest.MonkeyPatch) -> None:
    created = 0
    init = DemandTest.__init__

    def counted(self: DemandTest, *, needed: int, **others: Any) -> None:
        nonlocal created
        created += 1
        init(self, needed=needed, **others)

    monkeypatch.setattr(DemandTest, "__init__", counted)
    counts_of_classes(40)

    # Each class is tested with few combinations of its four filters, by 400 tests.
    assert created <= 8 * 40


def test_equal_groups_share_one_list_of_suppliers() -> None:
    root = EqualRoots(RootPattern(0, (0,), ()), (Node(0, 1, ()), Node(0, 2, ())), frozenset(), (1,))
    tree = EqualRootsTree(Cloud(Scope(), Layout({}), (root,), ()), root, [])
    tests = [GroupTest((DemandTest(needed=needed),), 0, Deadline.of(3600)) for needed in (0, 0, 1)]

    first, second, other = tree.suppliers(tests)

    assert first is second
    assert (first, other) == ([-1, -2], [])


def test_suppliers_of_a_group_end_at_the_deadline() -> None:
    root = EqualRoots(RootPattern(0, (0,), ()), (Node(0, 1, ()),), frozenset(), (1,))
    tree = EqualRootsTree(Cloud(Scope(), Layout({}), (root,), ()), root, [])
    with pytest.raises(Unavailable, match="takes longer"):
        tree.suppliers([GroupTest((DemandTest(needed=0),), 0, Deadline(1, 0.0, None, 0.0))])


def test_other_amounts_are_tried_once_for_equal_children(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = "; ".join(f"c{n}<h{{VCPU4}}" for n in range(40))
    load_cloud(read(f"h{{DISK_GB1}}; {children}; other<h{{VCPU4min2}}"))
    tried = 0
    has_candidate = AmountSearch._has_candidate

    def counted(self: AmountSearch, *args: Any) -> bool:
        nonlocal tried
        tried += 1
        return has_candidate(self, *args)

    monkeypatch.setattr(AmountSearch, "_has_candidate", counted)
    request = "resources1=VCPU:1&resources2=VCPU:1&same_subtree=1,2&group_policy=isolate"
    body = api("GET", f"/allocation_candidates/explanation?{request}").json

    assert body["complete"]
    assert body["relaxations"] == [
        {"without": "same_subtree=1,2", "roots": 1},
        {"without": "group_policy=isolate", "roots": 1},
    ]
    # Two amounts, each at the equal children and at the other one, and no pair.
    assert 0 < tried <= 4


def test_positions_are_equal_only_for_providers_that_a_symmetry_exchanges() -> None:
    # Two equal children with one and the same child each, a child with another one, and one without any.
    levels_and_patterns = [(1, 0), (2, 1), (3, 2), (2, 1), (3, 2), (2, 1), (3, 3), (2, 1)]
    nodes = tuple(Node(pattern, level, ()) for level, pattern in levels_and_patterns)
    root = EqualRoots(RootPattern(0, (0, 1, 2, 3), ()), nodes, frozenset(), (1,))
    tree = EqualRootsTree(Cloud(Scope(), Layout({}), (root,), ()), root, [])

    positions = [tree.position(-1 - number) for number in range(len(nodes))]

    assert positions == [-1, -2, -3, -2, -3, -6, -7, -8]
    assert tree.position(5) == 5


@pytest.mark.parametrize(
    "request_keys",
    [
        "resources=VCPU:9,MEMORY_MB:9,DISK_GB:9",
        "resources1=VCPU:9,MEMORY_MB:9,DISK_GB:9",
        "resources1=VCPU:9&resources2=MEMORY_MB:9&resources3=DISK_GB:9&group_policy=none",
        "resources=VCPU:4,MEMORY_MB:4&root_required=HW_CPU_X86_AVX",
        "resources=VCPU:4,MEMORY_MB:4",
    ],
    ids=["unsuffixed", "one-group", "groups", "root", "with-candidates"],
)
def test_no_amount_is_searched_that_cannot_win_a_root(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch, request_keys: str
) -> None:
    load_cloud(read("h0{VCPU8,MEMORY_MB8,DISK_GB8}; h1{VCPU2,MEMORY_MB2,DISK_GB2}"))
    monkeypatch.setattr(AmountSearch, "find", None)

    body = api("GET", f"/allocation_candidates/explanation?{request_keys}").json

    assert body["complete"]
    assert all("instead" not in each for each in body["relaxations"])


def test_changes_of_one_group_share_the_tests_of_the_others(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("h{VCPU8}"))
    created = 0
    init = GroupTests.__init__

    def counted(self: GroupTests, *args: Any) -> None:
        nonlocal created
        created += 1
        init(self, *args)

    monkeypatch.setattr(GroupTests, "__init__", counted)
    groups = "&".join(f"resources{number}=VCPU:2" for number in range(20))
    body = api("GET", f"/allocation_candidates/explanation?group_policy=isolate&{groups}").json

    assert body["complete"]
    # Those of the request, in its own cloud and in that of the changes, and few for each change.
    assert created <= 20 * 5


def test_patterns_are_tested_once_for_hosts_with_different_amounts(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = 0
    supplies = DemandTest.supplies

    def counted(self: DemandTest, *args: Any, **options: Any) -> bool:
        nonlocal tested
        tested += 1
        return supplies(self, *args, **options)

    monkeypatch.setattr(DemandTest, "supplies", counted)
    results = []
    request = "resources=VCPU:60,DISK_GB:1&can_split=VCPU&required=!HW_NUMA_ROOT&relaxations=0"
    for hosts in (range(3), range(3, 20)):
        # Both children of a host together have from 46 to 65 CPUs.
        trees = (f"h{n}{{DISK_GB8}}; a{n}<h{n}{{VCPU{n + 41}}}; b{n}<h{n}{{VCPU5}}" for n in hosts)
        load_cloud(read("; ".join(trees)))
        tested = 0
        body = api("GET", f"/allocation_candidates/explanation?{request}").json
        results.append((body["roots"]["with_candidates"], tested))

    (few_roots, few), (many_roots, many) = results
    assert (few_roots, many_roots) == (0, 6)
    # For each host without candidates, it is tested once more which filters it fails.
    assert many <= 2 * few


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> list[Cloud]:
    """The clouds that explanations have read."""
    clouds: list[Cloud] = []

    def kept(*arguments: Any) -> Cloud:
        clouds.append(read_cloud(*arguments))
        return clouds[-1]

    monkeypatch.setattr("placement_svc.db.explanation.counts.read_cloud", kept)
    return clouds


def test_amounts_above_the_requested_one_do_not_distinguish_hosts(
    api: Api, load_cloud: LoadCloud, clouds: list[Cloud]
) -> None:
    load_cloud(read("; ".join(f"h{n}{{VCPU{n + 4}}}; a{n}<h{n}{{VCPU{20 - n}}}" for n in range(9))))
    path = "/allocation_candidates/explanation?can_split=VCPU&relaxations=0&resources=VCPU:"
    bodies = [api("GET", f"{path}{amount}").json for amount in (4, 8)]

    assert [body["roots"]["with_candidates"] for body in bodies] == [9, 9]
    # The roots have from 4 to 12 CPUs, and their children 12 or more.
    assert [len(cloud.roots) for cloud in clouds] == [1, 5]


@pytest.mark.parametrize(
    ("amounts", "with_candidates", "distinguished"),
    [
        # One has 1, some have from 2 to 4, or 5 and 6, and others enough for both.
        ((2, 5), 14, 4),
        # There are more sums of seven amounts than are distinguished, so every amount is.
        (tuple(2**n for n in range(7)), 0, 20),
        # No inventory can have such an amount.
        ((10**19, 10**19), 0, 1),
        ((1, 10**19), 0, 1),
    ],
    ids=["few", "many", "too-large", "one-too-large"],
)
def test_only_sums_of_the_amounts_distinguish_hosts(
    api: Api,
    load_cloud: LoadCloud,
    clouds: list[Cloud],
    amounts: tuple[int, ...],
    with_candidates: int,
    distinguished: int,
) -> None:
    load_cloud(read("; ".join(f"h{n}{{VCPU{n}}}" for n in range(1, 21))))
    groups = "&".join(f"resources{n}=VCPU:{amount}" for n, amount in enumerate(amounts))
    path = f"/allocation_candidates/explanation?relaxations=0&group_policy=none&{groups}"
    body = api("GET", path).json

    assert body["roots"]["with_candidates"] == with_candidates
    assert [len(cloud.roots) for cloud in clouds] == [distinguished]


def test_order_of_providers_without_parts_does_not_distinguish_hosts(
    api: Api, load_cloud: LoadCloud, clouds: list[Cloud]
) -> None:
    load_cloud(read("; ".join(f"h{n}{{VCPU8}}; a{n}<h{n}{{VCPU8}}; b{n}<h{n}{{DISK_GB8}}" for n in range(9))))
    request = "resources=VCPU:12,DISK_GB:1&can_split=VCPU&resources1=VCPU:1&group_policy=none&relaxations=0"
    body = api("GET", f"/allocation_candidates/explanation?{request}").json

    assert body["roots"]["with_candidates"] == 9
    # Either of the two with CPUs can be first in the order of uuids.
    assert [len(cloud.roots) for cloud in clouds] == [2]
