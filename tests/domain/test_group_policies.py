"""The rules of placement groups, compared with a brute-force oracle."""

from itertools import combinations, pairwise
from typing import Any

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


def test_members_of_a_tie_all_violate_affinity() -> None:
    members = {"one": {"a"}, "two": {"b"}}
    assert violations(group_of("affinity"), members) == ["one", "two"]
    assert violations(group_of("affinity"), {**members, "three": {"a"}}) == ["two"]
