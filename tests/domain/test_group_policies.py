"""The rules of placement groups, compared with a brute-force oracle."""

import heapq
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_svc.domain.placement_groups import POLICIES, Occupancy, PlacementGroup, violations
from tests.conftest import examples
from tests.support import placement_group_oracle as oracle

DOMAINS = st.frozensets(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=2)
MEMBERS = st.lists(DOMAINS, max_size=7)


def group_of(policy: str, max_per_domain: int = 1) -> PlacementGroup:
    return PlacementGroup("group", policy, max_per_domain if policy.endswith("anti-affinity") else None, None)


GROUPS = st.builds(group_of, st.sampled_from(POLICIES), st.integers(1, 3))


def described(group: PlacementGroup) -> dict[str, Any]:
    return {"policy": group.policy, "max_per_domain": group.max_per_domain}


@settings(max_examples=examples(200), deadline=None)
@given(group=GROUPS, members=MEMBERS)
def test_violations_are_those_of_the_oracle(group: PlacementGroup, members: list[frozenset[Any]]) -> None:
    by_uuid = {str(number): domains for number, domains in enumerate(members)}
    assert violations(group, by_uuid) == oracle.violations(described(group), by_uuid)


@settings(max_examples=examples(200), deadline=None)
@given(group=GROUPS, members=MEMBERS, places=st.lists(DOMAINS, min_size=1, max_size=5, unique=True))
def test_ranks_follow_the_policy(
    group: PlacementGroup, members: list[frozenset[Any]], places: list[frozenset[Any]]
) -> None:
    occupancy = Occupancy(group, members)
    kept = {mine: oracle.keeps(described(group), members, mine) for mine in places}
    assert {mine: occupancy.allows(mine) for mine in places} == kept
    ranked = sorted(places, key=occupancy.rank)
    for better, worse in pairwise(ranked):
        assert (kept[better], None not in better) >= (kept[worse], None not in worse)
        if len(better) == len(worse) == 1 and None not in better | worse and kept[better] == kept[worse]:
            first, second = (sum(not mine.isdisjoint(each) for each in members) for mine in (better, worse))
            assert first <= second if group.is_anti_affinity else first >= second


@settings(max_examples=examples(200), deadline=None)
@given(group=GROUPS, members=MEMBERS, domains=st.frozensets(st.sampled_from(["a", "b", "c", "d", None])))
def test_first_level_with_a_set_of_domains_has_its_rank(
    group: PlacementGroup, members: list[frozenset[Any]], domains: frozenset[Any]
) -> None:
    occupancy = Occupancy(group, members)
    levels = list(occupancy.levels(domains))
    ranks = [rank for rank, _ in levels]
    assert ranks == sorted(set(ranks))
    keeping = occupancy.keeping_sets(domains)
    for sets in (keeping, *(sets for _, sets in levels)):
        assert sum(map(len, sets)) == len(frozenset[Any]().union(*sets))
    for size in range(1, len(domains) + 1):
        for mine in map(frozenset, combinations(domains, size)):
            first = next(rank for rank, sets in levels if any(mine <= each for each in sets))
            assert first == occupancy.rank(mine)
            assert any(mine <= each for each in keeping) == occupancy.allows(mine)


@settings(max_examples=examples(200), deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    max_per_domain=st.integers(1, 3),
    listed=st.permutations(["a", "b", "c", "d"]),
    members=MEMBERS,
    later=MEMBERS,
)
def test_no_listed_aggregate_precedes_the_best_one(
    policy: str, max_per_domain: int, listed: list[str], members: list[frozenset[Any]], later: list[Any]
) -> None:
    group = replace(group_of(policy, max_per_domain), aggregates=listed)
    occupancy = Occupancy(group, members)
    for domains in (*later, None):
        best = occupancy.best_listed()
        assert best in listed
        assert occupancy.rank([best]) == min(occupancy.rank([domain]) for domain in listed)
        assert occupancy.allows([best]) == any(occupancy.allows([domain]) for domain in listed)
        occupancy.add(domains or ())


def test_a_member_moves_one_aggregate_in_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = 0
    heapreplace = heapq.heapreplace

    def counted(heap: list[Any], entry: Any) -> Any:
        nonlocal moved
        moved += 1
        return heapreplace(heap, entry)

    monkeypatch.setattr(heapq, "heapreplace", counted)
    listed = [str(number) for number in range(100)]
    occupancy = Occupancy(replace(group_of("soft-anti-affinity"), aggregates=listed))
    chosen = []
    for _ in range(2 * len(listed)):
        chosen.append(occupancy.best_listed())
        occupancy.add(chosen[-1:])

    assert sorted(chosen[: len(listed)]) == sorted(chosen[len(listed) :]) == sorted(listed)
    assert moved < len(chosen)


def test_members_of_a_tie_all_violate_affinity() -> None:
    members = {"one": {"a"}, "two": {"b"}}
    assert violations(group_of("affinity"), members) == ["one", "two"]
    assert violations(group_of("affinity"), {**members, "three": {"a"}}) == ["two"]
