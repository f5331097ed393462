"""Lists of consumers, projects and allocations, compared with the single reads of a random cloud."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import text

from placement_svc.db.connections.engine import Database
from tests.conftest import Api
from tests.support import random_cloud
from tests.support.cloud import uuid_of
from tests.support.versions import EXTENDED

Get = Callable[[str], Any]
Record = dict[str, Any]


@pytest.fixture
def get(call: Callable[..., Any]) -> Get:
    """A function that sends a GET request that must succeed, and returns the body."""
    return lambda path: call("GET", path, version=EXTENDED)


@pytest.fixture(params=range(2))
def cloud(call: Callable[..., Any], get: Get, request: pytest.FixtureRequest) -> list[Record]:
    """The consumers of a random cloud in order of uuid, from the single reads."""
    random_cloud.fill(call, request.param)
    providers = get("/resource_providers")["resource_providers"]
    uuids = {
        uuid
        for one in providers
        for uuid in get(f"/resource_providers/{one['uuid']}/allocations")["allocations"]
    }
    assert len(uuids) > 5
    return [{"uuid": uuid, **get(f"/allocations/{uuid}")} for uuid in sorted(uuids)]


def all_pages(get: Get, path: str, name: str) -> Iterator[list[Record]]:
    """Yield the elements of each page, from the first one on."""
    following: str | None = path
    while following is not None:
        body = get(following)
        assert body.keys() == {name, "links"}
        yield body[name]
        following = body["links"][0]["href"] if body["links"] else None


def test_list_shows_what_the_single_reads_show(get: Get, cloud: list[Record]) -> None:
    started = datetime.now(UTC)
    [found] = all_pages(get, "/consumers?include=allocations", "consumers")
    for consumer, single in zip(found, cloud, strict=True):
        times = {key: consumer.pop(key) for key in ("created_at", "updated_at")}
        assert datetime.fromisoformat(times["created_at"]) < started
        assert times["updated_at"] is None
        single["generation"] = single.pop("consumer_generation")
        assert consumer == single
        del consumer["allocations"]
        assert get(f"/consumers/{consumer['uuid']}") == consumer | times
    found = list(all_pages(get, "/consumers?limit=2", "consumers"))
    assert [one["uuid"] for page in found for one in page] == [one["uuid"] for one in cloud]
    assert {len(page) for page in found[:-1]} == {2}


@pytest.mark.parametrize("minus", ["", "-"])
def test_consumers_in_the_order_of_creation(
    get: Get, cloud: list[Record], database: Database, minus: str
) -> None:
    """Consumers without a time come last in both orders, those with the same time by uuid."""
    uuids = [one["uuid"] for one in cloud]
    alike, unknown = uuids[:2], uuids[2:4]
    for uuid_set, time in ((alike, datetime(2026, 1, 1, tzinfo=UTC)), (unknown, None)):
        change = text("UPDATE consumers SET created_at = :time WHERE uuid = ANY (:uuids)")
        values = {"time": time, "uuids": uuid_set}
        database.write(lambda connection, values=values, change=change: connection.execute(change, values))
    times = {one["uuid"]: one["created_at"] for one in get("/consumers")["consumers"]}
    known = sorted(uuids[:2] + uuids[4:], key=lambda uuid: str(times[uuid]), reverse=minus == "-")
    for limit in (1, 3):
        pages = all_pages(get, f"/consumers?sort_by={minus}created_at&limit={limit}", "consumers")
        assert [one["uuid"] for page in pages for one in page] == known + unknown
    assert {times[uuid] for uuid in unknown} == {None}
    assert [uuid for uuid in known if uuid in alike] == alike


def test_filters_of_consumers_speak_of_one_allocation(get: Get, cloud: list[Record]) -> None:
    providers = get("/resource_providers")["resource_providers"]
    root_of = {one["uuid"]: one["root_provider_uuid"] for one in providers}
    choices = {
        "project_id": [None, *{one["project_id"] for one in cloud}, "unknown"],
        "consumer_type": [None, "INSTANCE", "unknown", "OTHER"],
        "resource_provider": [None, *list(root_of)[:3], uuid_of("unknown")],
        "in_tree": [None, *list(root_of)[:2]],
        "resource_class": [None, "VCPU", "CUSTOM_GPU"],
    }
    for number, values in enumerate(product(*choices.values())):
        if number % 7:
            continue
        wanted = {key: value for key, value in zip(choices, values, strict=True) if value is not None}
        expected = [
            one["uuid"]
            for one in cloud
            if one["project_id"] == wanted.get("project_id", one["project_id"])
            and one["consumer_type"] == wanted.get("consumer_type", one["consumer_type"])
            and any(
                provider == wanted.get("resource_provider", provider)
                and ("in_tree" not in wanted or root_of[provider] == root_of[wanted["in_tree"]])
                and name == wanted.get("resource_class", name)
                for provider, allocated in one["allocations"].items()
                for name in allocated["resources"]
            )
        ]
        found = get(f"/consumers?{urlencode(wanted)}")["consumers"]
        assert [one["uuid"] for one in found] == expected, wanted
    for user in ("u", "v", "w"):
        found = get(f"/consumers?user_id={user}")["consumers"]
        assert [one["uuid"] for one in found] == [one["uuid"] for one in cloud if one["user_id"] == user]


def test_projects_have_the_sums_of_their_consumers(get: Get, cloud: list[Record]) -> None:
    expected: dict[str, Record] = {}
    for one in sorted(cloud, key=lambda one: one["project_id"].encode()):
        project = expected.setdefault(
            one["project_id"], {"project_id": one["project_id"], "consumers": 0, "usages": Counter()}
        )
        project["consumers"] += 1
        for allocated in one["allocations"].values():
            project["usages"].update(allocated["resources"])
    for limit in (1, 2, 10000):
        found = all_pages(get, f"/projects?limit={limit}", "projects")
        assert [one for page in found for one in page] == list(expected.values())
    for name in random_cloud.CLASSES:
        for sign in (1, -1):
            ordered = sorted(expected.values(), key=lambda one: sign * one["usages"][name])
            path = f"/projects?limit=2&sort_by={'-' if sign < 0 else ''}{name}"
            assert [one for page in all_pages(get, path, "projects") for one in page] == ordered
    project = next(iter(expected))
    path = f"/projects?{urlencode({'project_id': project})}"
    assert get(path) == {"projects": [expected[project]], "links": []}
    assert get("/projects?project_id=unknown")["projects"] == []


def test_allocations_are_those_of_the_single_reads(get: Get, cloud: list[Record]) -> None:
    uuids = [one["uuid"] for one in cloud]
    unknown = uuid_of("unknown")
    listed = ",".join([*uuids, unknown, uuids[0]])
    assert get(f"/allocations?consumer_uuid=in:{listed}") == {
        "consumers": {uuid: get(f"/allocations/{uuid}") for uuid in uuids}
    }
    providers = [one["uuid"] for one in get("/resource_providers")["resource_providers"]]
    assert get(f"/allocations?rp_uuid=in:{','.join([*providers, unknown])}") == {
        "resource_providers": {uuid: get(f"/resource_providers/{uuid}/allocations") for uuid in providers}
    }
    assert get(f"/allocations?rp_uuid={unknown}") == {"resource_providers": {}}


def test_times_of_a_consumer(call: Callable[..., Any], database: Database, get: Get) -> None:
    provider, uuid = uuid_of("provider"), uuid_of("consumer")
    call("POST", "/resource_providers", {"name": "a", "uuid": provider})
    inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
    call("PUT", f"/resource_providers/{provider}/inventories", inventories)
    claim = {
        "allocations": {provider: {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "INSTANCE",
        "consumer_generation": None,
    }
    call("PUT", f"/allocations/{uuid}", claim)
    created = get(f"/consumers/{uuid}")
    before = datetime.now(UTC)
    call("PUT", f"/allocations/{uuid}", get(f"/allocations/{uuid}"))
    changed = get(f"/consumers/{uuid}")
    assert changed["created_at"] == created["created_at"]
    assert datetime.fromisoformat(changed["updated_at"]) >= before
    database.write(lambda connection: connection.execute(text("UPDATE consumers SET created_at = NULL")))
    assert get(f"/consumers/{uuid}") == changed | {"created_at": None}


READER = {"X-Auth-Token": "reader:p", "X-Roles": "reader"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/consumers", 403),
        ("/consumers?project_id=p", 200),
        ("/consumers?project_id=P", 403),
        ("/consumers?project_id=p&project_id=P", 403),
        ("/consumers?project_id=P&project_id=p", 200),
        ("/consumers?project_id=p&include=allocations", 403),
        (f"/consumers?project_id=p&resource_provider={uuid_of('a')}", 403),
        (f"/consumers?project_id=p&in_tree={uuid_of('a')}", 403),
        ("/projects", 403),
        ("/projects?project_id=p", 200),
        ("/projects?project_id=P", 403),
        (f"/allocations?consumer_uuid=in:{uuid_of('a')}", 403),
        (f"/allocations?rp_uuid=in:{uuid_of('a')}", 403),
    ],
)
def test_readers_see_their_own_project(api: Api, path: str, status: int) -> None:
    assert api("GET", path, version=EXTENDED, headers=READER).status_code == status


def test_consumers_of_other_projects_do_not_exist_for_readers(
    api: Api, get: Get, call: Callable[..., Any]
) -> None:
    random_cloud.fill(call, 1)
    statuses = {}
    for one in get("/consumers")["consumers"]:
        response = api("GET", f"/consumers/{one['uuid']}", headers=READER)
        statuses.setdefault(one["project_id"] == "p", set()).add(response.status_code)
    assert statuses == {True: {200}, False: {404}}
    unknown = uuid_of("unknown")
    missing = api("GET", f"/consumers/{unknown}", headers=READER).get_json()["errors"][0]["detail"]
    other = next(one["uuid"] for one in get("/consumers")["consumers"] if one["project_id"] != "p")
    hidden = api("GET", f"/consumers/{other}", headers=READER).get_json()["errors"][0]["detail"]
    assert hidden == missing.replace(unknown, other)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/allocations", "rp_uuid"),
        (f"/allocations?rp_uuid=in:{uuid_of('a')}&consumer_uuid=in:{uuid_of('a')}", "consumer_uuid"),
        ("/allocations?rp_uuid=in:x", "'x'"),
        ("/allocations?consumer_uuid=x", "'x'"),
        ("/allocations?color=red", "color"),
        ("/consumers?color=red", "color"),
        ("/consumers?sort_by=name", "sort_by"),
        ("/consumers?marker=x", "'x'"),
        ("/consumers?include=usages", "usages"),
        ("/consumers?resource_provider=x", "'x'"),
        ("/consumers?resource_class=CUSTOM_UNKNOWN", "CUSTOM_UNKNOWN"),
        ("/consumers?consumer_type=all", "'all'"),
        ("/projects?sort_by=CUSTOM_UNKNOWN", "CUSTOM_UNKNOWN"),
        ("/projects?sort_by=name", "'name'"),
        ("/projects?sort_by=VCPU&marker=x", "'x'"),
        ("/projects?limit=0", "'0'"),
    ],
)
def test_invalid_values_are_named(api: Api, path: str, named: str) -> None:
    response = api("GET", path, version=EXTENDED)
    assert response.status_code == 400
    assert named in response.get_json()["errors"][0]["detail"]


def test_list_of_allocations_is_a_new_method(api: Api) -> None:
    path = f"/allocations?rp_uuid=in:{uuid_of('a')}"
    response = api("GET", path)
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert api("GET", path, version=EXTENDED).status_code == 200
    assert set(api("DELETE", path, version=EXTENDED).headers["Allow"].split(", ")) == {"GET", "POST"}


def test_new_paths_need_no_header(api: Api) -> None:
    response = api("GET", "/consumers", version="1.0")
    assert response.status_code == 200
    assert response.headers["OpenStack-API-Version"] == "placement 1.0, placement-svc 1.0"
    assert response.headers["Cache-Control"] == "no-cache"
    assert "code" in api("GET", "/consumers?limit=0", version="1.0").get_json()["errors"][0]
