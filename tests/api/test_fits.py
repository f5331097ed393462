"""The capacity for a request: large clouds, pages, and the bounds of its cost."""

import base64
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from flask import Flask

from placement_svc.db import fits, independent_fits
from placement_svc.domain.simulated_claims import most_claims
from tests.conftest import ADMIN, Api, LoadCloud, NewApp
from tests.support.cloud import read, uuid_of
from tests.support.statements import count_statements

PATH = "/allocation_candidates/capacity"

TEN_NODES = "a{MEMORY_MB1}; " + "; ".join(f"a{number}<a{{VCPU4}}" for number in range(10))
TWO_AND_THREE = "resources1=VCPU:2&resources2=VCPU:3&group_policy=none"
"""A node of 4 VCPU has room for 2 + 2 or for 3. Three nodes with 2 + 2 and six with 3 give 6 claims, although
40 VCPU would be enough for 8.
"""


def test_bound_is_lower_where_the_greatest_number_is_unknown(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read(TEN_NODES))
    body = api("GET", f"{PATH}?{TWO_AND_THREE}").json
    assert (body["fits"], body["bound"]) == (6, "exact")
    monkeypatch.setattr(most_claims, "MAX_COMPETING_STEPS", 1)
    body = api("GET", f"{PATH}?{TWO_AND_THREE}").json
    assert body["bound"] == "lower"
    assert 1 <= body["fits"] <= 6
    assert body["binding"] == {"VCPU": body["fits"]}
    assert body["stranded"] == {"VCPU": 40 - 5 * body["fits"]}


def test_small_case_is_searched(api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    load_cloud(read("a{MEMORY_MB1}; " + "; ".join(f"a{number}<a{{VCPU4}}" for number in range(4))))
    body = api("GET", f"{PATH}?{TWO_AND_THREE}").json
    assert (body["fits"], body["bound"]) == (2, "exact")
    monkeypatch.setattr(most_claims, "MAX_COMPETING_STEPS", 1)
    body = api("GET", f"{PATH}?{TWO_AND_THREE}").json
    assert (body["fits"], body["bound"]) == (2, "lower")


def test_many_combinations_are_claimed_one_after_the_other(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("a{VCPU3}; " + "; ".join(f"a{number}<a{{SRIOV_NET_VF1}}" for number in range(12))))
    groups = "&".join(f"resources{number}=SRIOV_NET_VF:1" for number in range(1, 5))
    body = api("GET", f"{PATH}?resources=VCPU:1&{groups}&group_policy=isolate").json
    assert (body["fits"], body["bound"]) == (3, "exact")
    assert body["stranded"] == {}


def test_connected_roots_get_the_greatest_number(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first root takes the storage with most left first, but only that one serves the second root."""
    first, second = sorted("ab", key=uuid_of)
    load_cloud(read(f"{first}{{VCPU2}}@X,Y; {second}{{VCPU3}}@X; s{{DISK_GB3}}$@X; t{{DISK_GB2}}$@Y"))
    body = api("GET", f"{PATH}?resources=VCPU:1,DISK_GB:1").json
    assert (body["fits"], body["bound"], body["stranded"]) == (5, "exact", {})
    assert {root["name"]: root["fits"] for root in body["roots"]} == {first: 2, second: 3}
    monkeypatch.setattr(most_claims, "MAX_STEPS", 1)
    body = api("GET", f"{PATH}?resources=VCPU:1,DISK_GB:1").json
    assert (body["fits"], body["bound"]) == (3, "lower")


NUMA_HOSTS = "; ".join(
    f"h{n}{{DISK_GB{n + 2}}}{'#COMPUTE_NODE' if n % 3 else ''}@X{n % 2}; "
    + "; ".join(
        f"h{n}n{node}<h{n}{{VCPU12 used{(2 * n + node) % 13} MEMORY_MB96 used{n * (9 + node)}}}#HW_NUMA_ROOT"
        for node in range(2)
    )
    for n in range(7)
)


def test_independent_demands_are_counted_as_in_a_simulation(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read(NUMA_HOSTS))
    targets = [
        f"{PATH}?{query}"
        for query in (
            "resources=VCPU:1",
            "resources=DISK_GB:1,VCPU:2,MEMORY_MB:11",
            "resources=DISK_GB:1&resources1=MEMORY_MB:11,VCPU:2&required1=HW_NUMA_ROOT",
            f"resources=DISK_GB:1&resources1=VCPU:2&group_policy=isolate&member_of=!{uuid_of('X1')}",
            f"resources=VCPU:1,MEMORY_MB:9&root_member_of={uuid_of('X0')}&group_by=aggregate",
            "resources=DISK_GB:1,VCPU:2&required=HW_NUMA_ROOT",
            "resources=DISK_GB:1,VCPU:2&required=COMPUTE_NODE,HW_NUMA_ROOT",
            "resources1=VCPU:1,MEMORY_MB:8&max=20",
            "resources1=VCPU:1,MEMORY_MB:8&max=1",
            f"resources=DISK_GB:1&resources1=MEMORY_MB:11&without={uuid_of('h5n1')},{uuid_of('h3')}",
        )
    ]
    with monkeypatch.context() as patch:
        patch.setattr(fits, "has_independent_demands", lambda _: False)
        expected = [api("GET", target).json for target in targets]
    assert all(body["fits"] for body in expected)
    monkeypatch.setattr(independent_fits, "has_few_roots", lambda _: False)
    monkeypatch.setattr(fits, "read_suppliers", None)
    assert [api("GET", target).json for target in targets] == expected


@pytest.mark.parametrize("claim", ["resources2=VCPU:2", "resources=VCPU:2&can_split=VCPU"])
def test_a_maximum_below_the_greatest_number_is_reached(api: Api, load_cloud: LoadCloud, claim: str) -> None:
    """The run that does not search for the greatest number ends after 4 claims."""
    load_cloud(
        read(
            "c{VCPU8 DISK_GB4}$@X2,X3; f{VCPU24 DISK_GB10 min2 max3 step2}$@X3; "
            "a{VCPU2 DISK_GB8}; d<a@X2; b{MEMORY_MB4}$@X2"
        )
    )
    query = f"resources1=DISK_GB:1&{claim}&resources3=DISK_GB:2"
    found = [api("GET", f"{PATH}?{query}&max={most}").json for most in range(1, 8)]
    assert [body["fits"] for body in found] == [1, 2, 3, 4, 5, 6, 6]
    assert [body["bound"] for body in found] == ["lower"] * 5 + ["exact"] * 2


@pytest.mark.parametrize("other", ["min7", "step2", "step3 min4"])
def test_provider_without_a_part_of_the_amount_does_not_count(
    api: Api, load_cloud: LoadCloud, other: str
) -> None:
    load_cloud(read(f"root{{}}; c<root{{VCPU8}}; other<root{{VCPU1000 {other}}}"))
    body = api("GET", f"{PATH}?resources=VCPU:3&can_split=VCPU").json
    assert (body["fits"], body["bound"], body["binding"]) == (2, "exact", {"VCPU": 2})


def test_maximum_that_ends_the_search_for_more_claims(api: Api, load_cloud: LoadCloud) -> None:
    """The claims of b must not use the pool, which n1 needs. So 4 fit, and n1 has room after the third."""
    load_cloud(read("b{VCPU2 DISK_GB4}@X; n1{VCPU2}@X; pool{DISK_GB4}$@X"))
    query = "resources=VCPU:1,DISK_GB:2&can_split=DISK_GB"
    found = [api("GET", f"{PATH}?{query}&max={most}").json for most in range(1, 5)]
    assert [body["fits"] for body in found] == [1, 2, 3, 4]
    assert [body["bound"] for body in found] == ["lower"] * 3 + ["exact"]
    assert [body["binding"].get("other", 0) for body in found] == [1, 0, 1, 0]
    assert [sum(body["binding"].values()) for body in found] == [1, 2, 3, 4]


def test_pages_have_each_root_once(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("; ".join(f"h{number}{{VCPU{1 + number % 3}}}" for number in range(9))))
    found: list[dict[str, Any]] = []
    target = f"{PATH}?resources=VCPU:1&limit=2"
    while target:
        body = api("GET", target).json
        found += body["roots"]
        target = body["links"][0]["href"] if body["links"] else ""
    expected = sorted(range(9), key=lambda number: (-1 - number % 3, uuid_of(f"h{number}")))
    assert [root["name"] for root in found] == [f"h{number}" for number in expected]
    assert body["fits"] == sum(root["fits"] for root in found) == 18


@pytest.mark.parametrize(("value", "key"), [(None, "x"), ("2", None)])
def test_marker_without_value_or_key_is_malformed(api: Api, value: str | None, key: str | None) -> None:
    content = orjson.dumps(["fits", "", True, value, key])
    marker = base64.urlsafe_b64encode(content).rstrip(b"=").decode()
    response = api("GET", f"{PATH}?resources=VCPU:1&marker={marker}")
    assert response.status_code == 400
    assert "Expected 'marker' to be the one in the 'next' link" in response.text


def test_storage_of_a_forbidden_aggregate_strands_through_other_trees(
    api: Api, load_cloud: LoadCloud
) -> None:
    """The root of the storage is in a forbidden aggregate, but not that of the host which it serves."""
    load_cloud(read("r{VCPU1}@Y; s<r{DISK_GB7}$@X; h{VCPU2}@X; g{DISK_GB3}@Y"))
    forbidden = f"member_of=!{uuid_of('Y')}"
    body = api("GET", f"{PATH}?resources=VCPU:1,DISK_GB:2&{forbidden}").json
    assert (body["fits"], body["stranded"]) == (2, {"DISK_GB": 3})
    body = api("GET", f"{PATH}?resources=VCPU:1,DISK_GB:2&{forbidden}&without={uuid_of('h')}").json
    assert (body["fits"], body["stranded"]) == (0, {})


def test_amounts_can_exceed_64_bits(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(
        read("; ".join(f"h{number}{{VCPU2000000000 ratio2000000000 DISK_GB1}}" for number in range(3)))
    )
    body = api("GET", f"{PATH}?resources=VCPU:1,DISK_GB:1&max=999999999999999999").json
    assert body["fits"] == 3
    assert body["stranded"] == {"VCPU": 3 * 4 * 10**18 - 3}
    body = api("GET", f"{PATH}?resources=VCPU:1&max=999999999999999999").json
    assert (body["fits"], body["bound"]) == (10**18 - 1, "lower")
    assert api("GET", f"{PATH}?resources=VCPU:99999999999999999999").json["fits"] == 0


@pytest.mark.usefixtures("no_kept_counts")
def test_number_of_statements_does_not_depend_on_the_cloud(
    app: Flask, api: Api, load_cloud: LoadCloud, clean_database: Callable[[], None]
) -> None:
    query = f"{TWO_AND_THREE}&resources=DISK_GB:1&group_by=aggregate"
    numbers = []
    for size in (2, 20):
        clean_database()
        hosts = (f"h{n}{{VCPU8}}@X; c{n}<h{n}{{VCPU10 used4}}" for n in range(size))
        load_cloud(read("; ".join([*hosts, "s{DISK_GB9}$@X"])))
        numbers.append(count_statements(app, lambda: api("GET", f"{PATH}?{query}&without={uuid_of('h0')}")))
    assert numbers[0] == numbers[1]


def test_deadline_ends_the_computation(new_app: NewApp, app: Flask, load_cloud: LoadCloud) -> None:
    load_cloud(read("; ".join(f"h{n}{{VCPU{n + 1}}}" for n in range(20))))
    query = "&".join(f"resources{n}=VCPU:{n + 1}" for n in range(20)) + "&group_policy=none"
    response = new_app(request_deadline=0.001).test_client().get(f"{PATH}?{query}", headers=ADMIN)
    assert response.status_code == 503, response.json


def test_suppliers_of_the_cloud_need_memory(
    new_app: NewApp, app: Flask, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("; ".join(f"h{n}{{VCPU8}}" for n in range(20))))
    monkeypatch.setattr("placement_svc.api.allocation_candidates.MEGABYTE", 10_000)
    response = new_app(max_search_memory=1).test_client().get(f"{PATH}?resources=VCPU:1", headers=ADMIN)
    assert response.status_code == 400, response.json
    assert "memory" in response.json["errors"][0]["detail"]
