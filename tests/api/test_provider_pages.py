"""Lists of resource providers with parts and in pages, compared with the reads of single providers."""

import base64
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from random import Random
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from sqlalchemy import text

from placement_svc.api import pages
from placement_svc.db.connections.engine import Database
from tests.conftest import Api
from tests.support import random_cloud
from tests.support.cloud import uuid_of
from tests.support.versions import EXTENDED

PARTS = ["inventories", "usages", "traits", "aggregates", "allocations"]

Get = Callable[[str], Any]
Record = dict[str, Any]


@pytest.fixture
def get(call: Callable[..., Any]) -> Get:
    """A function that sends a GET request that must succeed, and returns the body."""
    return lambda path: call("GET", path, version=EXTENDED)


def all_pages(get: Get, path: str, name: str) -> Iterator[list[Record]]:
    """Yield the elements of each page, from the first one on."""
    following: str | None = path
    while following is not None:
        body = get(following)
        assert body.keys() == {name, "links"}
        yield body[name]
        assert [link["rel"] for link in body["links"]] in ([], ["next"])
        following = body["links"][0]["href"] if body["links"] else None


def read_singly(get: Get) -> list[Record]:
    """Return every provider with all its parts, from the reads of single providers, in order of uuid."""
    listed = get("/resource_providers")["resource_providers"]
    return [
        {
            **get(f"/resource_providers/{one['uuid']}"),
            **{part: get(f"/resource_providers/{one['uuid']}/{part}")[part] for part in PARTS},
        }
        for one in sorted(listed, key=lambda provider: provider["uuid"])
    ]


def amount(provider: Record, attribute: str, resource_class: str) -> int | None:
    inventory = provider["inventories"].get(resource_class)
    if inventory is None:
        return None
    used: int = provider["usages"][resource_class]
    if attribute == "used":
        return used
    return int((inventory["total"] - inventory["reserved"]) * inventory["allocation_ratio"]) - used


def in_order(providers: list[Record], sort_by: str) -> list[Record]:
    """Return the providers, which are in order of uuid, in the order of `sort_by`."""
    descending = sort_by.startswith("-")
    attribute, _, resource_class = sort_by.removeprefix("-").partition(":")
    if attribute == "name":
        return sorted(providers, key=lambda one: one["name"].encode(), reverse=descending)
    with_amount = [one for one in providers if amount(one, attribute, resource_class) is not None]
    without_amount = [one for one in providers if amount(one, attribute, resource_class) is None]
    sign = -1 if descending else 1
    return (
        sorted(with_amount, key=lambda one: sign * (amount(one, attribute, resource_class) or 0))
        + without_amount
    )


@pytest.mark.parametrize("seed", range(3))
def test_included_parts_are_those_of_the_single_reads(get: Get, call: Callable[..., Any], seed: int) -> None:
    random_cloud.fill(call, seed)
    expected = read_singly(get)
    assert get(f"/resource_providers?include={','.join(PARTS)}")["resource_providers"] == expected
    for part in PARTS:
        [found] = all_pages(get, f"/resource_providers?include={part}", "resource_providers")
        left_out = set(PARTS) - {part}
        assert found == [{k: v for k, v in one.items() if k not in left_out} for one in expected]


@pytest.mark.parametrize("seed", range(3))
def test_pages_have_each_provider_once_in_order(get: Get, call: Callable[..., Any], seed: int) -> None:
    random_cloud.fill(call, seed)
    providers = read_singly(get)
    keys = ["name", *(f"{a}:{c}" for a, c in product(["used", "free"], ["VCPU", "DISK_GB"]))]
    for sort_by in [*keys, *(f"-{key}" for key in keys)]:
        expected = [one["uuid"] for one in in_order(providers, sort_by)]
        for query in ("", "&limit=1", "&limit=3", "&limit=10000"):
            found = list(
                all_pages(get, f"/resource_providers?sort_by={sort_by}{query}", "resource_providers")
            )
            assert [one["uuid"] for page in found for one in page] == expected, (sort_by, query)
            assert all(found)
    for limit in (1, 4, len(providers), len(providers) + 1):
        found = list(all_pages(get, f"/resource_providers?limit={limit}", "resource_providers"))
        assert [one["uuid"] for page in found for one in page] == [one["uuid"] for one in providers]
        assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)


def test_filters_hold_on_every_page(get: Get, call: Callable[..., Any]) -> None:
    random_cloud.fill(call, 0)
    providers = read_singly(get)
    for part in ("a", "%", "_", ".1", "", "A0"):
        expected = [one["uuid"] for one in providers if part in one["name"]]
        path = f"/resource_providers?name={quote(f'contains:{part}')}&limit=1"
        found = all_pages(get, path, "resource_providers")
        assert [one["uuid"] for page in found for one in page] == expected
    some = Random(0).sample([one["uuid"] for one in providers], 3)
    body = get(f"/resource_providers?uuid=in:{','.join([*some, uuid_of('unknown'), some[0]])}")
    assert [one["uuid"] for one in body["resource_providers"]] == sorted(some)
    root = providers[0]["root_provider_uuid"]
    found = all_pages(get, f"/resource_providers?in_tree={root}&limit=2&sort_by=-name", "resource_providers")
    assert {one["uuid"] for page in found for one in page} == {
        one["uuid"] for one in providers if one["root_provider_uuid"] == root
    }


def test_marker_of_a_deleted_provider_still_works(get: Get, call: Callable[..., Any], api: Api) -> None:
    for number in range(4):
        call("POST", "/resource_providers", {"name": f"{number}", "uuid": f"{number}" * 8 + uuid_of("a")[8:]})
    for query in ("limit=2", "limit=2&sort_by=name", "limit=2&sort_by=-used:VCPU"):
        first = get(f"/resource_providers?{query}")
        last = first["resource_providers"][-1]
        call("DELETE", f"/resource_providers/{last['uuid']}")
        rest = get(first["links"][0]["href"])["resource_providers"]
        assert [one["name"] for one in rest] == ["2", "3"]
        call("POST", "/resource_providers", {"name": last["name"], "uuid": last["uuid"]})


@pytest.mark.parametrize("path", ["/resource_providers?", "/capacity?group_by=root&"])
def test_marker_may_be_in_capitals(get: Get, call: Callable[..., Any], path: str) -> None:
    uuids = sorted(uuid_of(name) for name in "abcd")
    for uuid in uuids:
        call("POST", "/resource_providers", {"name": uuid, "uuid": uuid})
        inventories = {"inventories": {"VCPU": {"total": 1}}, "resource_provider_generation": 0}
        call("PUT", f"/resource_providers/{uuid}/inventories", inventories)
    name = "groups" if "group_by" in path else "resource_providers"
    for number, uuid in enumerate(uuids):
        found = get(f"{path}limit=2&marker={uuid.upper()}")[name]
        assert [each.get("uuid") or each["root"]["uuid"] for each in found] == uuids[number + 1 : number + 3]


def detail(api: Api, path: str, version: str = EXTENDED) -> str:
    response = api("GET", path, version=version)
    assert response.status_code == 400, response.get_data()
    return str(response.get_json()["errors"][0]["detail"])


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("include=colors", "colors"),
        ("include=", "include"),
        ("include=traits,,usages", "include"),
        ("limit=0", "'0'"),
        ("limit=-1", "'-1'"),
        ("limit=ten", "'ten'"),
        ("limit=10001", "10001"),
        (f"limit={'9' * 5000}", "10000"),
        ("marker=x", "'x'"),
        ("sort_by=color", "color"),
        ("sort_by=used", "used"),
        ("sort_by=name:VCPU", "name:VCPU"),
        ("sort_by=--name", "--name"),
        ("sort_by=used:CUSTOM_UNKNOWN", "CUSTOM_UNKNOWN"),
        ("sort_by=name&marker=a", "'a'"),
        ("sort_by=name&marker=é", "é"),
        ("uuid=in:x", "'x'"),
        ("uuid=in:", "uuid"),
        ("limit=1&uuid=x", "'x'"),
        ("limit=1&color=red", "color"),
    ],
)
def test_invalid_values_are_named(api: Api, query: str, named: str) -> None:
    assert named in detail(api, f"/resource_providers?{query}")


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {"a": 1},
        ["used", "VCPU", False, "1"],
        ["used", "VCPU", True, "1", uuid_of("a")],
        ["used", "DISK_GB", False, "1", uuid_of("a")],
        ["used", "VCPU", False, 1, uuid_of("a")],
        ["used", "VCPU", False, "x", uuid_of("a")],
        ["used", "VCPU", False, "1" * 50, uuid_of("a")],
        ["used", "VCPU", False, "1", 5],
        ["used", "VCPU", False, "1", "\x00"],
        ["used", "VCPU", False, "\u0661", "x"],
    ],
)
def test_forged_markers_are_invalid(api: Api, content: Any) -> None:
    assert "marker" in detail(api, f"/resource_providers?sort_by=used:VCPU&marker={encoded(content)}")


@pytest.mark.parametrize("query", ["include=traits", "limit=1", "marker=x", "sort_by=name", "uuid=in:x"])
@pytest.mark.parametrize("version", ["1.39", "1.38, placement-svc 1.0"])
def test_extensions_need_both_versions(api: Api, query: str, version: str) -> None:
    assert detail(api, f"/resource_providers?{query}", version)


def test_text_is_a_whole_name_without_extensions(api: Api, call: Callable[..., Any]) -> None:
    call("POST", "/resource_providers", {"name": "contains:a", "uuid": uuid_of("a")})
    body = call("GET", "/resource_providers?name=contains:a")
    assert [one["name"] for one in body["resource_providers"]] == ["contains:a"]


ADD_PROVIDERS = text("""
    INSERT INTO resource_providers (id, uuid, name, root_id, path)
    SELECT n, gen_random_uuid()::text, 'name' || n, n, ARRAY[n] FROM generate_series(1, :count) AS n
""")


def test_long_list_is_streamed_and_read_in_parts(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PIECE_SIZE", 1000)

    def add(connection: Any) -> None:
        connection.execute(ADD_PROVIDERS, {"count": 2500})

    database.write(add)
    with closing(api("GET", "/resource_providers?include=traits", version=EXTENDED)) as response:
        assert "Content-Length" not in response.headers
        found = [one["uuid"] for one in orjson.loads(response.get_data())["resource_providers"]]
    assert found == sorted(found)
    assert len(set(found)) == 2500
