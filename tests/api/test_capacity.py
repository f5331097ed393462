"""Sums of inventories and allocations, compared with loops over the single reads of a random cloud."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import Api, LoadCloud
from tests.support import random_cloud
from tests.support.cloud import read, uuid_of

PARTS = ["inventories", "usages", "traits", "aggregates", "allocations"]
READER = {"X-Auth-Token": "reader:p", "X-Roles": "reader"}

Get = Callable[[str], Any]
Record = dict[str, Any]
Sums = dict[str, dict[str, int]]


@pytest.fixture
def get(call: Callable[..., Any]) -> Get:
    """A function that sends a GET request that must succeed, and returns the body."""
    return lambda path: call("GET", path)


@pytest.fixture(params=range(2))
def providers(call: Callable[..., Any], get: Get, request: pytest.FixtureRequest) -> list[Record]:
    """The providers of a random cloud with all their parts, from the single reads."""
    random_cloud.fill(call, request.param)
    return [
        one | {part: get(f"/resource_providers/{one['uuid']}/{part}")[part] for part in PARTS}
        for one in get("/resource_providers")["resource_providers"]
    ]


def grantable(inventory: Record, free: int) -> int:
    """Return the largest amount that the inventory grants, by trying each."""
    amounts = range(inventory["min_unit"], min(free, inventory["max_unit"]) + 1)
    return max((amount for amount in amounts if amount % inventory["step_size"] == 0), default=0)


def add(sums: Sums, provider: Record) -> None:
    for name, inventory in provider["inventories"].items():
        capacity = int((inventory["total"] - inventory["reserved"]) * inventory["allocation_ratio"])
        used = provider["usages"][name]
        own = {
            "total": inventory["total"],
            "reserved": inventory["reserved"],
            "capacity": capacity,
            "used": used,
            "free": max(0, capacity - used),
        }
        of_class = sums.setdefault(name, dict.fromkeys([*own, "max_free"], 0))
        for key, amount in own.items():
            of_class[key] += amount
        of_class["max_free"] = max(of_class["max_free"], grantable(inventory, capacity - used))


def keys(provider: Record, root: Record, grouping: str) -> set[str | None]:
    """Return the groups of a provider."""
    if grouping == "root":
        return {root["uuid"]}
    part = f"{grouping}s"
    return {*provider[part], *root[part]} or {None}


def all_pages(get: Get, path: str) -> Iterator[Record]:
    following: str | None = path
    while following is not None:
        body = get(following)
        yield from body["groups"]
        following = body["links"][0]["href"] if body["links"] else None


def grouped(providers: list[Record], grouping: str) -> dict[str | None, Sums]:
    by_uuid = {one["uuid"]: one for one in providers}
    groups: dict[str | None, Sums] = defaultdict(dict)
    for one in providers:
        if one["inventories"]:
            for key in keys(one, by_uuid[one["root_provider_uuid"]], grouping):
                add(groups[key], one)
    return groups


def key_of(group: Record, grouping: str) -> str | None:
    key = group[grouping]
    return key["uuid"] if grouping == "root" else key


def in_order(groups: dict[str | None, Sums]) -> list[str | None]:
    return sorted(groups, key=lambda key: (key is None, (key or "").encode()))


def test_sums_of_all_providers(get: Get, providers: list[Record]) -> None:
    total: Sums = {}
    for one in providers:
        add(total, one)
    assert get("/capacity") == {"resource_classes": total}
    matching: Sums = {}
    for one in providers:
        if "a" in one["name"]:
            add(matching, one)
    assert get("/capacity?name=contains:a") == {"resource_classes": matching}
    assert get(f"/capacity?uuid={uuid_of('unknown')}") == {"resource_classes": {}}


@pytest.mark.parametrize("grouping", ["root", "aggregate", "trait"])
def test_sums_of_groups_of_providers(get: Get, providers: list[Record], grouping: str) -> None:
    expected = grouped(providers, grouping)
    for limit in (1, 2, 100):
        found = list(all_pages(get, f"/capacity?group_by={grouping}&limit={limit}"))
        assert [key_of(group, grouping) for group in found] == in_order(expected)
        assert all(group["resource_classes"] == expected[key_of(group, grouping)] for group in found)
    for attribute in ("used", "free", "ratio"):
        for sign in (1, -1):

            def rank(key: str | None, attribute: str = attribute, sign: int = sign) -> tuple[Any, ...]:
                of_class = expected[key].get("VCPU")
                is_nothing = of_class is not None and not of_class["used"] and not of_class["capacity"]
                if of_class is None or (attribute == "ratio" and is_nothing):
                    return True, 0
                ratio = of_class["used"] / (of_class["capacity"] or 1e-12)
                return False, sign * (ratio if attribute == "ratio" else of_class[attribute])

            path = f"/capacity?group_by={grouping}&limit=2&sort_by={'-' if sign < 0 else ''}{attribute}:VCPU"
            found = [key_of(group, grouping) for group in all_pages(get, path)]
            assert found == sorted(in_order(expected), key=rank), path


@pytest.mark.parametrize(
    ("sign", "names"),
    [("-", ["below", "none", "over", "empty"]), ("", ["over", "none", "below", "empty"])],
)
def test_usage_without_capacity_is_the_fullest(
    get: Get, load_cloud: LoadCloud, sign: str, names: list[str]
) -> None:
    load_cloud(read("empty{VCPU8 res8}; over{VCPU8 used9}; none{VCPU8 res8 used1}; below{VCPU8 res9 used2}"))
    for limit in (1, 2, 100):
        path = f"/capacity?group_by=root&limit={limit}&sort_by={sign}ratio:VCPU"
        assert [group["root"]["name"] for group in all_pages(get, path)] == names


def test_usage_without_capacity_exceeds_the_greatest_ratio(get: Get, call: Callable[..., Any]) -> None:
    largest = 2**31 - 1

    def put_inventory(name: str, generation: int, **inventory: float) -> None:
        body = {"resource_provider_generation": generation, "inventories": {"VCPU": inventory}}
        call("PUT", f"/resource_providers/{uuid_of(name)}/inventories", body)

    def claim(name: str, amount: int) -> Record:
        return {
            "allocations": {uuid_of(name): {"resources": {"VCPU": amount}}},
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
            "project_id": "project",
            "user_id": "user",
        }

    for name in ("over", "none"):
        call("POST", "/resource_providers", {"name": name, "uuid": uuid_of(name)})
        put_inventory(name, 0, total=largest, allocation_ratio=1000)
    claims = {uuid_of(f"server {number}"): claim("over", largest) for number in range(500)}
    call("POST", "/allocations", claims | {uuid_of("server"): claim("none", 1)})
    put_inventory("over", 2, total=1)
    put_inventory("none", 2, total=1, reserved=1)
    groups = get("/capacity?group_by=root&sort_by=ratio:VCPU")["groups"]
    assert [group["root"]["name"] for group in groups] == ["over", "none"]


@pytest.mark.parametrize("grouping", ["consumer_type", "project_id"])
def test_used_amounts_of_groups_of_consumers(get: Get, providers: list[Record], grouping: str) -> None:
    expected: dict[str | None, Any] = defaultdict(lambda: defaultdict(lambda: {"used": 0}))
    for one in providers:
        for uuid, allocated in one["allocations"].items():
            key = get(f"/allocations/{uuid}")[grouping]
            for name, used in allocated["resources"].items():
                expected[None if key == "unknown" else key][name]["used"] += used
    found = list(all_pages(get, f"/capacity?group_by={grouping}&limit=1"))
    assert [group[grouping] for group in found] == in_order(expected)
    assert all(group["resource_classes"] == expected[group[grouping]] for group in found)
    found = list(all_pages(get, f"/capacity?group_by={grouping}&limit=2&sort_by=-used:VCPU"))
    assert [group[grouping] for group in found] == sorted(
        in_order(expected),
        key=lambda key: ("VCPU" not in expected[key], -expected[key].get("VCPU", {"used": 0})["used"]),
    )


def test_sums_beyond_64_bits(get: Get, call: Callable[..., Any]) -> None:
    for name in "abc":
        call("POST", "/resource_providers", {"name": name, "uuid": uuid_of(name)})
        inventory = {"total": 2**31 - 1, "allocation_ratio": 1e30}
        body = {"resource_provider_generation": 0, "inventories": {"VCPU": inventory}}
        call("PUT", f"/resource_providers/{uuid_of(name)}/inventories", body)
    assert get("/capacity")["resource_classes"]["VCPU"]["capacity"] == pytest.approx(12 * 10**18)
    assert len(list(all_pages(get, "/capacity?group_by=trait&sort_by=free:VCPU&limit=1"))) == 1


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("color=red", "color"),
        ("group_by=color", "color"),
        ("limit=1", "limit"),
        ("sort_by=used:VCPU", "sort_by"),
        ("group_by=root&sort_by=name", "name"),
        ("group_by=root&sort_by=used:CUSTOM_UNKNOWN", "CUSTOM_UNKNOWN"),
        ("group_by=root&marker=x", "'x'"),
        ("group_by=project_id&sort_by=ratio:VCPU", "used:CLASS"),
        ("group_by=root&sort_by=ratio:VCPU&marker=x", "'x'"),
    ],
)
def test_invalid_values_are_named(api: Api, query: str, named: str) -> None:
    response = api("GET", f"/capacity?{query}")
    assert response.status_code == 400
    assert named in response.get_json()["errors"][0]["detail"]


@pytest.mark.parametrize("query", ["", "?group_by=project_id", "?group_by=root"])
def test_readers_may_not_read_sums(api: Api, query: str) -> None:
    assert api("GET", f"/capacity{query}", headers=READER).status_code == 403
