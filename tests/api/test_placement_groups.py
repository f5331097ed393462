"""Placement groups over HTTP: their policy, their members, and who violates it after plain writes."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import Engine

from placement_svc.db.audit import audit
from placement_svc.domain.placement_groups import POLICIES
from tests.conftest import Api, LoadCloud
from tests.support import placement_group_oracle as oracle
from tests.support.cloud import read, uuid_of
from tests.support.placement_groups import add_members

GROUP = f"/placement_groups/{uuid_of('group')}"
NO_CONSUMERS: dict[str, Any] = {"members": [], "violations": []}

CLOUD = """
    h1{VCPU9}@X; numa<h1{VCPU9}@Y; h2{VCPU9}@Y; h3{VCPU9}@X,Y; h4{VCPU9};
    s1{DISK_GB9}$@X; s2{DISK_GB9}$@Y; child<s2{DISK_GB9}$
"""
PROVIDERS = ("h1", "numa", "h2", "h3", "h4", "s1", "s2", "child")

Call = Callable[..., Any]


@pytest.fixture
def join(engine: Engine) -> Callable[..., None]:
    """A function that makes consumers members of the group."""

    def join(*names: str) -> None:
        add_members(engine, uuid_of("group"), map(uuid_of, names))

    return join


def put(call: Call, name: str, suppliers: Sequence[str], generation: int | None = None) -> None:
    """Let a consumer have one unit of each of these providers."""
    allocations = {
        uuid_of(supplier): {"resources": {"DISK_GB" if supplier in ("s1", "s2", "child") else "VCPU": 1}}
        for supplier in suppliers
    }
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    body = {"allocations": allocations, "consumer_generation": generation, **owner}
    call("PUT", f"/allocations/{uuid_of(name)}", body)


def test_a_group_is_created_shown_replaced_and_deleted(api: Api) -> None:
    group = {"policy": "anti-affinity", "max_per_domain": 2, "across": [uuid_of("X"), uuid_of("Y")]}
    created = api("PUT", GROUP, group)
    assert (created.status_code, created.json) == (
        201,
        {"uuid": uuid_of("group"), **group, **NO_CONSUMERS},
    )
    assert created.headers["cache-control"] == "no-cache"
    assert api("GET", GROUP).json == created.json
    replaced = api("PUT", GROUP, {"policy": "soft-affinity"})
    assert (replaced.status_code, replaced.json) == (
        200,
        {
            "uuid": uuid_of("group"),
            "policy": "soft-affinity",
            "max_per_domain": None,
            "across": "root",
            **NO_CONSUMERS,
        },
    )
    assert api("GET", GROUP).json == replaced.json
    assert api("DELETE", GROUP).status_code == 204
    assert [api(method, GROUP).status_code for method in ("GET", "DELETE")] == [404, 404]


def test_a_group_has_one_uuid_in_any_spelling(api: Api) -> None:
    spelling = uuid_of("group").replace("-", "").upper()
    created = api("PUT", f"/placement_groups/{spelling}", {"policy": "affinity"})
    assert created.json["uuid"] == uuid_of("group")
    assert api("GET", f"/placement_groups/{spelling}").json == api("GET", GROUP).json == created.json


def test_anti_affinity_allows_one_member_by_default(api: Api) -> None:
    assert api("PUT", GROUP, {"policy": "soft-anti-affinity", "across": "root"}).json["max_per_domain"] == 1


@pytest.mark.parametrize("across", ["root", [uuid_of("X"), uuid_of("Y")]])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_policy_that_a_group_shows_can_be_sent_again(api: Api, policy: str, across: Any) -> None:
    shown = api("PUT", GROUP, {"policy": policy, "across": across}).json
    body = {key: shown[key] for key in ("policy", "max_per_domain", "across")}
    replaced = api("PUT", GROUP, body)
    assert (replaced.status_code, replaced.json) == (200, shown)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"across": "root"},
        {"policy": "together"},
        {"policy": "affinity", "max_per_domain": 1},
        {"policy": "soft-affinity", "max_per_domain": 1},
        {"policy": "anti-affinity", "max_per_domain": 0},
        {"policy": "anti-affinity", "max_per_domain": 2147483648},
        {"policy": "anti-affinity", "max_per_domain": None},
        {"policy": "soft-anti-affinity", "max_per_domain": None},
        {"policy": "anti-affinity", "across": "aggregate"},
        {"policy": "anti-affinity", "across": []},
        {"policy": "anti-affinity", "across": ["rack"]},
        {"policy": "anti-affinity", "across": [uuid_of("X"), uuid_of("X")]},
        {"policy": "anti-affinity", "across": [uuid_of(str(number)) for number in range(1001)]},
        {"policy": "anti-affinity", "across": 1},
        {"policy": "anti-affinity", "across": None},
        {"policy": "anti-affinity", "members": []},
        [],
    ],
)
def test_an_invalid_body_is_refused(api: Api, body: Any) -> None:
    refused = api("PUT", GROUP, body)
    assert refused.status_code == 400
    assert refused.json["errors"][0]["code"] == "placement.undefined_code"
    assert api("GET", GROUP).status_code == 404


@pytest.mark.parametrize("across", [None, 1])
def test_an_error_of_the_domains_names_both_types(api: Api, across: Any) -> None:
    refused = api("PUT", GROUP, {"policy": "anti-affinity", "across": across})
    assert f"{across} is not of type 'string', 'array'" in refused.json["errors"][0]["detail"]


def test_a_malformed_uuid_is_refused(api: Api) -> None:
    assert api("PUT", "/placement_groups/racks", {"policy": "affinity"}).status_code == 400
    assert [api(method, "/placement_groups/racks").status_code for method in ("GET", "DELETE")] == [404, 404]


def test_lists_have_pages(call: Call, load_cloud: LoadCloud, join: Callable[..., None]) -> None:
    load_cloud(read(CLOUD))
    uuids = sorted(uuid_of(name) for name in ("group", "other", "third"))
    for uuid in uuids:
        call("PUT", f"/placement_groups/{uuid}", {"policy": "anti-affinity", "across": [uuid_of("X")]})
    put(call, "one", ["h1"])
    put(call, "two", ["h2"])
    join("one", "two")
    expected = [
        {
            "uuid": uuid,
            "policy": "anti-affinity",
            "max_per_domain": 1,
            "across": [uuid_of("X")],
            "member_count": 2 if uuid == uuid_of("group") else 0,
        }
        for uuid in uuids
    ]
    assert call("GET", "/placement_groups") == {"placement_groups": expected, "links": []}
    page = call("GET", "/placement_groups?limit=2")
    assert page["placement_groups"] == expected[:2]
    rest = call("GET", page["links"][0]["href"])
    assert rest == {"placement_groups": expected[2:], "links": []}
    assert call("GET", f"/placement_groups?marker={uuids[1].upper()}") == rest


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "marker=x", "policy=affinity"])
def test_a_bad_query_is_refused(api: Api, query: str) -> None:
    assert api("GET", f"/placement_groups?{query}").status_code == 400


def test_a_group_with_members_cannot_be_deleted(
    api: Api, call: Call, load_cloud: LoadCloud, join: Callable[..., None]
) -> None:
    load_cloud(read(CLOUD))
    call("PUT", GROUP, {"policy": "affinity"})
    put(call, "one", ["h1"])
    join("one")
    refused = api("DELETE", GROUP)
    assert refused.status_code == 409
    assert refused.json["errors"][0]["code"] == "placement_svc.placement_group.inuse"
    call("DELETE", f"/allocations/{uuid_of('one')}")
    assert call("GET", GROUP)["members"] == []
    assert api("DELETE", GROUP).status_code == 204


def test_membership_ends_with_the_consumer(
    call: Call, load_cloud: LoadCloud, join: Callable[..., None]
) -> None:
    load_cloud(read(CLOUD))
    call("PUT", GROUP, {"policy": "affinity"})
    put(call, "one", ["h1"])
    join("one")
    put(call, "one", ["h2", "h3"], 1)
    assert call("GET", GROUP)["members"] == [
        {"consumer_uuid": uuid_of("one"), "roots": sorted([uuid_of("h2"), uuid_of("h3")])}
    ]
    put(call, "one", [], 2)
    put(call, "one", ["h1"])
    assert call("GET", GROUP)["members"] == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_members_and_violations_are_those_of_the_oracle(
    policy: str,
    seed: int,
    call: Call,
    load_cloud: LoadCloud,
    join: Callable[..., None],
    engine: Engine,
) -> None:
    rng = random.Random(seed)
    cloud = read(" ".join(CLOUD.split()))
    load_cloud(cloud)
    providers = {
        provider.uuid: {
            "root": cloud.root(provider).uuid,
            "traits": provider.traits,
            "aggregates": {uuid_of(name) for name in provider.aggregates},
        }
        for provider in cloud.providers
    }
    call("PUT", GROUP, {"policy": policy})
    suppliers = {f"c{number}": rng.sample(PROVIDERS, rng.randint(1, 2)) for number in range(6)}
    for name, chosen in suppliers.items():
        put(call, name, chosen)
    join(*suppliers)
    roots = {
        uuid_of(name): oracle.roots([uuid_of(each) for each in chosen], providers)
        for name, chosen in suppliers.items()
    }
    for across in ("root", [uuid_of("Y"), uuid_of("X")], [uuid_of("X")], [uuid_of("nobody")]):
        body: dict[str, Any] = {"policy": policy, "across": across}
        if policy.endswith("anti-affinity"):
            body["max_per_domain"] = rng.randint(1, 3)
        shown = call("PUT", GROUP, body)
        assert shown == call("GET", GROUP)
        assert shown["members"] == [
            {"consumer_uuid": uuid, "roots": sorted(roots[uuid])} for uuid in sorted(roots)
        ]
        expected = oracle.violations(
            body,
            {uuid: {oracle.domain(body, root, providers) for root in each} for uuid, each in roots.items()},
        )
        assert shown["violations"] == expected
        assert audited(engine) == (sorted(expected) if not policy.startswith("soft-") else [])


def audited(engine: Engine) -> list[str]:
    """Return the consumers that an audit reports, which is a notice."""
    with engine.connect() as connection:
        findings = [found for found in audit.find(connection) if "group" in found.rule.inconsistency]
    assert all(found.rule.is_notice and not found.fixed for found in findings)
    return sorted(row.subject.split()[1] for found in findings for row in found.examples)
