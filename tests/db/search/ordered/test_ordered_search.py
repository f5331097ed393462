"""Ordered searches: each way of finding the anchors gives the same answer, which agrees with the oracle."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.name_lookup import NamesLookup
from placement_svc.db.search.ordered import anchors, batches, own_roots, roots, search
from placement_svc.db.search.ordered.served_roots import ServedRoots
from placement_svc.domain.combining import ordered_candidates
from tests.conftest import Api, LoadCloud, examples
from tests.db.search.test_candidates_property import NO_DEADLINE
from tests.support.cloud import Cloud, read
from tests.support.oracle import Group, Request, response_errors
from tests.support.strategies import NEWEST, scenarios, scenarios_with_ignored_consumers
from tests.support.versions import EXTENDED

TRAIT = "HW_CPU_X86_SGX"


WAYS = (
    "all at once",
    "in order",
    "in order, tested by uuid",
    "in order, then all at once",
    "in small sets",
    "in order, then in sets",
    "in order, then in sets of amounts",
)
"""The ways to find the anchors; two are "in order" if filters do not limit the roots to sets.

The third one tests roots by uuid for an amount, or for being served, instead of reading those that are.
"""


@contextmanager
def forced(way: str, *, batch: int = 2) -> Iterator[None]:
    """Force one of `WAYS`: batches have a few roots in order until none is left, or all anchors at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SearchCriteria, "has_rare_criterion", lambda *_: way == "all at once")
        for name in ("is_small_trait_set", "is_small_aggregate_set"):
            patch.setattr(NamesLookup, name, lambda *_: way == "in small sets")
        for name in ("is_sufficient_trait_set", "is_sufficient_aggregate_set"):
            patch.setattr(NamesLookup, name, lambda *_: False)
        patch.setattr(batches, "FIRST_BATCH", (0, batch))
        patch.setattr(batches, "FIRST_FILTERED_BATCH", (0, batch))
        patch.setattr(batches, "FIRST_BATCH_OF_SETS", (0, batch))
        patch.setattr(batches, "BATCH_GROWTH", 1)
        patch.setattr(batches, "MIN_SAMPLE", 0)
        patch.setattr(anchors.AnchorSource, "_listing_cost", lambda _: 0)
        uses_amounts = way == "in order, then in sets of amounts"
        patch.setattr(anchors, "CLASS_COST", 0 if uses_amounts else math.inf)
        patch.setattr(batches, "MIN_ANCHOR_RATIO", 2 if way.startswith("in order, then in sets") else 0)
        patch.setattr(batches, "MAX_ORDERED_BATCHES", 10_000)
        patch.setattr(batches, "MIN_USELESS_LIMIT", 10_000)
        patch.setattr(ServedRoots, "_most_listed", lambda *_: 10_000)
        patch.setattr(roots, "MIN_LISTED", 1)
        patch.setattr(search, "CHUNK_GROWTH", 1)
        if way == "in order, tested by uuid":
            patch.setattr(own_roots, "MIN_TESTED", 1)
            patch.setattr(ServedRoots, "_most_listed", lambda *_: -1)
            # The same order also results if the best combination of a tree is tried before all others.
            patch.setattr(ordered_candidates, "MAX_SORTED_SUPPLIERS", 0)
        leaves = way == "in order, then all at once"
        patch.setattr(search.OrderedSearch, "_most_lack_candidates", lambda each: leaves and each._combined)
        yield


def check_responses(
    api: Callable[..., Any],
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
    limit: int,
    batch: int,
) -> None:
    """Check that each way to find the anchors gives the response of the oracle."""
    cloud, requests = scenario
    clean_database()
    load_cloud(cloud)
    for request in (replace(each, limit=limit) for each in requests if each.is_ordered):
        note(f"cloud: {cloud}\nrequest: {request}")
        bodies = {}
        for way in WAYS:
            with forced(way, batch=batch):
                response = api("GET", f"/allocation_candidates?{request.query()}", version=EXTENDED)
            assert response.status_code == 200, response.json
            assert response_errors(cloud, request, response.json) == [], way
            bodies[way] = response.json["allocation_requests"]
        assert request.order_by == "random" or bodies == dict.fromkeys(WAYS, bodies["all at once"])


@settings(NO_DEADLINE, max_examples=examples(40))
@given(scenario=scenarios(NEWEST), limit=st.integers(1, 4), batch=st.integers(1, 3))
def test_all_ways_give_the_same_response(
    api: Callable[..., Any],
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
    limit: int,
    batch: int,
) -> None:
    check_responses(api, clean_database, load_cloud, scenario, limit, batch)


@settings(NO_DEADLINE, max_examples=examples(40))
@given(scenario=scenarios_with_ignored_consumers(), limit=st.integers(1, 4), batch=st.integers(1, 3))
def test_ignored_consumers_change_the_order_of_roots(
    api: Callable[..., Any],
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
    limit: int,
    batch: int,
) -> None:
    check_responses(api, clean_database, load_cloud, scenario, limit, batch)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("filters", ["", f"&required={TRAIT}", f"&preferred={TRAIT}"])
def test_random_order_gives_each_host_the_same_chance(
    api: Callable[..., Any], load_cloud: LoadCloud, way: str, filters: str
) -> None:
    # The trees of `c` and `d` have the preferred trait, but not their suppliers.
    traits = [f"{name}{{VCPU8}}" + (f"#{TRAIT}" if "required" in filters else "") for name in "abcd"]
    cloud = read("; ".join([*traits, f"x<c{{DISK_GB8}}#{TRAIT}", f"y<d{{DISK_GB8}}#{TRAIT}"]))
    load_cloud(cloud)
    names = {provider.uuid: provider.name for provider in cloud.providers}
    drawn = Counter[str]()
    with forced(way, batch=1):
        for _ in range(200):
            query = f"resources=VCPU:1{filters}&limit=1&order_by=random"
            response = api("GET", f"/allocation_candidates?{query}", version=EXTENDED)
            [entry] = response.json["allocation_requests"]
            drawn.update(names[uuid] for uuid in entry["allocations"])
    # Each of the four has 50 of 200; fewer than 20 has a probability below one in a million.
    assert min(drawn[name] for name in "abcd") >= 20


@pytest.mark.parametrize("order", ["random", "spread:VCPU", "pack:VCPU"])
@pytest.mark.parametrize("limit", [2**31, 10**18])
def test_limit_may_be_beyond_the_integers_of_the_database(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch, order: str, limit: int
) -> None:
    monkeypatch.setattr("placement_svc.db.search.criteria_builder.RARITY_THRESHOLD", 0)
    children = "; ".join(f"c{host}{child}<h{host}{{VCPU8}}" for host in range(3) for child in range(12))
    load_cloud(read(f"h0#{TRAIT}; h1; h2; {children}"))
    query = f"resources=VCPU:1&preferred={TRAIT}&order_by={order}&limit={limit}"
    response = api("GET", f"/allocation_candidates?{query}", version=EXTENDED)
    assert (response.status_code, len(response.json["allocation_requests"])) == (200, 36)


@pytest.mark.parametrize("most_listed", [-1, 10_000], ids=["tested", "listed"])
def test_limit_of_hosts_with_sharing_providers_may_be_beyond_the_integers(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch, most_listed: int
) -> None:
    monkeypatch.setattr(SearchCriteria, "has_rare_criterion", lambda *_: False)
    monkeypatch.setattr(ServedRoots, "_most_listed", lambda *_: most_listed)
    load_cloud(read("s{DISK_GB9}$@A; t{DISK_GB8}$@A; h{VCPU8}@A; i{VCPU8}@A"))
    query = "resources=VCPU:1,DISK_GB:1&order_by=spread:DISK_GB&limit=1000000000000"
    response = api("GET", f"/allocation_candidates?{query}", version=EXTENDED)
    assert (response.status_code, len(response.json["allocation_requests"])) == (200, 4)


def test_random_order_lists_each_sharing_provider_once(
    api: Callable[..., Any], load_cloud: LoadCloud
) -> None:
    pools = "stuvwxyz"
    load_cloud(
        read(
            "; ".join(
                [*(f"{each}{{}}@A" for each in "abcdef"), *(f"{each}{{DISK_GB9}}$@A" for each in pools)]
            )
        )
    )
    request = Request((Group("", {"DISK_GB": 1}),), limit=len(pools), order_by="random")
    with forced("in order", batch=1):
        for _ in range(30):
            response = api("GET", f"/allocation_candidates?{request.query()}", version=EXTENDED)
            suppliers = [tuple(entry["allocations"]) for entry in response.json["allocation_requests"]]
            assert len(set(suppliers)) == len(suppliers) == len(pools)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("", ["c1", "d1", "d2", "c2"]),
        ("&order_by=pack:VCPU", ["c1", "d1", "c2", "d2"]),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 3, 4, None])
def test_preferred_orders_candidates_and_with_order_by_trees(
    api: Callable[..., Any], load_cloud: LoadCloud, limit: int | None, order: str, expected: list[str]
) -> None:
    cloud = read(
        "c{}; c1<c{VCPU4}#HW_CPU_X86_AVX; c2<c{VCPU4};"
        " d{}; d1<d{VCPU8}#HW_CPU_X86_AVX; d2<d{VCPU8}#HW_CPU_X86_AVX"
    )
    load_cloud(cloud)
    assert cloud.provider("c").uuid < cloud.provider("d").uuid
    names = {provider.uuid: provider.name for provider in cloud.providers}
    query = f"resources=VCPU:1&preferred=HW_CPU_X86_AVX{order}" + (f"&limit={limit}" if limit else "")
    response = api("GET", f"/allocation_candidates?{query}", version=EXTENDED)
    listed = [names[uuid] for each in response.json["allocation_requests"] for uuid in each["allocations"]]
    of_rank = [{"d1", "d2"} if name in ("d1", "d2") else {name} for name in expected][:limit]
    assert [name in names for name, names in zip(listed, of_rank, strict=True)] == [True] * len(of_rank)
    assert len(set(listed)) == len(listed)
