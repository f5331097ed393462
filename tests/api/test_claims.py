"""POST /claims: the body, errors, dry runs, lost races and the cost (`docs/spec/extensions.md 5.1`)."""

import math
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import Engine, event, text

from bench import large_cloud
from placement_svc.db.search import batches, random_root
from placement_svc.db.search.name_lookup import NamesLookup
from placement_svc.domain.execution import request_stats
from tests.conftest import ADMIN, Api, LoadCloud, NewApp
from tests.support.claims_oracle import consumer
from tests.support.cloud import read, uuid_of
from tests.support.small_batches import small_batches
from tests.support.statements import sent_statements

A, B, C = map(uuid_of, ["consumer a", "consumer b", "consumer c"])


def body(*uuids: str, request: str = "resources=VCPU:4", **options: Any) -> dict[str, Any]:
    """Return the body of a call for new consumers."""
    return {"request": request, "consumers": [consumer(uuid) for uuid in uuids], **options}


def error(response: Any) -> dict[str, Any]:
    """Return the only error of a response."""
    [found] = response.json["errors"]
    return dict(found)


def allocations(api: Api, uuid: str) -> dict[str, Any]:
    """Return the resources of a consumer by provider."""
    found = api("GET", f"/allocations/{uuid}").json["allocations"]
    return {provider: each["resources"] for provider, each in found.items()}


@pytest.mark.parametrize("is_small", [True, False])
def test_the_only_host_with_room_is_found_among_full_ones(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    """No host of the first batch is an anchor, wherever it starts, unless it has the only one."""
    monkeypatch.setattr("placement_svc.db.search.criteria_builder.RARITY_THRESHOLD", 0)
    monkeypatch.setattr(NamesLookup, "is_small_trait_set", lambda *_: is_small)
    monkeypatch.setattr(batches, "FIRST_SCAN", (0, 2))
    full = [f"h{number}{{VCPU8 used8,MEMORY_MB9}}#COMPUTE_NODE" for number in range(20)]
    load_cloud(read("; ".join([*full, "free{VCPU8 MEMORY_MB9}#COMPUTE_NODE", "other{VCPU8 MEMORY_MB9}"])))
    request = "resources=VCPU:4,MEMORY_MB:1&required=COMPUTE_NODE"
    for uuid in (A, B):
        [claim] = api("POST", "/claims", body(uuid, request=request)).json["claims"]
        assert claim["root"]["name"] == "free"
    refused = api("POST", "/claims", body(C, request=request))
    assert (refused.status_code, error(refused)["placeable"]) == (409, 0)


def test_consumers_are_placed_and_claimed(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{MEMORY_MB8}; n0<h{VCPU4}"))
    request = "resources=MEMORY_MB:2&resources_N=VCPU:2&required_N=!CUSTOM_X"
    assert api("PUT", "/traits/CUSTOM_X").status_code == 201

    response = api("POST", "/claims", json=body(A, B, request=request))

    assert response.status_code == 200, response.json
    assert response.headers["OpenStack-API-Version"] == "placement 1.39, placement-svc 1.0"
    host, node = uuid_of("h"), uuid_of("n0")
    placed = {
        "consumer_generation": 1,
        "allocations": {
            host: {"resources": {"MEMORY_MB": 2}},
            node: {"resources": {"VCPU": 2}},
        },
        "mappings": {"": [host], "_N": [node]},
        "root": {"uuid": host, "name": "h"},
    }
    assert response.json == {
        "claims": [{"consumer_uuid": A, **placed}, {"consumer_uuid": B, **placed}],
        "unplaced": [],
        "attempts": 1,
    }
    stored = api("GET", f"/allocations/{A}").json
    assert stored["project_id"] == "p"
    assert stored["consumer_type"] == "INSTANCE"
    assert allocations(api, B) == {host: {"MEMORY_MB": 2}, node: {"VCPU": 2}}


def test_too_few_candidates_change_nothing(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{VCPU8}"))
    request = "resources=VCPU:3&limit=1"

    response = api("POST", "/claims", json=body(A, B, C, request=request))

    assert response.status_code == 409
    found = error(response)
    assert found["code"] == "placement_svc.no_candidates"
    assert found["placeable"] == 2
    assert found["explanation"] == f"/allocation_candidates/explanation?{request}"
    assert api("GET", found["explanation"]).json["has_candidates"] is True
    assert [allocations(api, uuid) for uuid in (A, B, C)] == [{}, {}, {}]
    assert api("GET", "/consumers").json["consumers"] == []


@pytest.mark.parametrize(
    "request_keys",
    [
        "resources=VCPU:9&can_split=VCPU&limit=1",
        "can_split=VCPU;resources=VCPU:9;limit=1",
        "resources=VCPU:9&c%61n_split=VCPU&can_split=VCPU&limit=1",
    ],
)
def test_a_refused_split_is_explained(api: Api, load_cloud: LoadCloud, request_keys: str) -> None:
    load_cloud(read("h{MEMORY_MB8}; n0<h{VCPU4}; n1<h{VCPU4}"))
    found = error(api("POST", "/claims", json=body(A, request=request_keys)))
    assert found["explanation"] == f"/allocation_candidates/explanation?{request_keys}"
    explanation = api("GET", found["explanation"]).json
    assert explanation["kind"] == "impossible"
    assert explanation["relaxations"] == [{"instead": "resources=VCPU:8", "roots": 1}]


@pytest.mark.parametrize("excess", [0, 1])
def test_explanation_is_no_longer_than_a_request_line(api: Api, load_cloud: LoadCloud, excess: int) -> None:
    load_cloud(read("h{VCPU8}"))
    assert api("POST", "/claims", json=body(A)).status_code == 200
    line = "GET /allocation_candidates/explanation?{}&ignore_consumer={} HTTP/1.1"
    request = f"resources=VCPU:99&in_tree=!in:{B}"
    blanks, digits = divmod(65_536 + excess - len(line.format(request, A)), len("%20"))
    request = request.replace("99", "9" * (2 + digits)).replace("in:", "in:" + " " * blanks)

    response = api("POST", "/claims", json={"request": request, "consumers": [consumer(A, 1)]})

    assert response.status_code == 409
    explained = line.format(request.replace(" ", "%20"), A)
    assert len(explained) == 65_536 + excess
    assert error(response)["explanation"] == (None if excess else explained.split()[1])


def test_min_count_leaves_the_last_consumers_unplaced(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{VCPU8}"))

    response = api("POST", "/claims", json=body(A, B, C, request="resources=VCPU:3", min_count=2))

    assert [claim["consumer_uuid"] for claim in response.json["claims"]] == [A, B]
    assert response.json["unplaced"] == [C]
    assert allocations(api, C) == {}


@pytest.mark.parametrize("dry_run", [False, True])
def test_generation_of_an_unplaced_consumer_is_checked(
    api: Api, load_cloud: LoadCloud, dry_run: bool
) -> None:
    """A scheduler must not learn that there is no host for a server that has one."""
    load_cloud(read("h{VCPU8}"))
    assert api("POST", "/claims", json=body(C, request="resources=VCPU:2")).status_code == 200

    sent = body(A, B, C, request="resources=VCPU:3", min_count=1, dry_run=dry_run)
    response = api("POST", "/claims", json=sent)

    assert response.status_code == 409
    assert error(response)["code"] == "placement.concurrent_update"
    assert allocations(api, A) == allocations(api, B) == {}
    assert allocations(api, C) == {uuid_of("h"): {"VCPU": 2}}


@pytest.mark.parametrize("uuid", [A.upper(), A.replace("-", ""), f"{{{A}}}", f"urn:uuid:{A}"])
def test_uuids_are_stored_in_one_form(api: Api, load_cloud: LoadCloud, uuid: str) -> None:
    load_cloud(read("h{VCPU8}"))
    response = api("POST", "/claims", json=body(uuid))
    assert [claim["consumer_uuid"] for claim in response.json["claims"]] == [A]
    assert allocations(api, A) == {uuid_of("h"): {"VCPU": 4}}


def without(key: str) -> dict[str, Any]:
    return {other: value for other, value in consumer(A).items() if other != key}


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"consumers": [consumer(A)]}, "'request' is a required property"),
        ({"request": "resources=VCPU:1"}, "'consumers' is a required property"),
        (body(A, other=1), "'other' was unexpected"),
        (body(), "should be non-empty"),
        (body(*[str(UUID(int=number)) for number in range(1001)]), "is too long"),
        *[
            ({"request": "resources=VCPU:1", "consumers": [without(key)]}, f"'{key}' is a required property")
            for key in consumer(A)
        ],
        ({"request": "resources=VCPU:1", "consumers": [{**consumer(A), "x": 1}]}, "'x' was unexpected"),
        (body("a"), "is not a 'uuid'"),
        (body(A, B, A.upper()), "the same uuid twice"),
        (body(A, min_count=0), "less than the minimum"),
        (body(A, min_count=2), "'min_count' is 2, but the body has 1 consumer."),
        (body(A, min_count=True), "is not of type 'integer'"),
        (body(A, dry_run=1), "is not of type 'boolean'"),
        (body(A, request=""), "resources"),
        (body(A, request="resources=VCPU:0"), "VCPU"),
        (body(A, request="resources=CUSTOM_NONE:1"), "No such resource class CUSTOM_NONE"),
        (body(A, request="resources=VCPU:1&required=CUSTOM_NONE"), "No such trait"),
        (body(A, request=f"resources=VCPU:1&ignore_consumer={B}"), "'ignore_consumer' is not allowed"),
        (body(A, request="resources=VCPU:1&\x00"), "does not match"),
        (body(A, request="resources=VCPU:1&a=%ff"), "UTF-8"),
        (body(A, request="resources=VCPU:1" + "&a" * 40_000), "is too long"),
        (
            {
                "request": "resources=VCPU:1",
                "consumers": [consumer(A), consumer(B, 1)],
                "min_count": 1,
            },
            "'min_count' must be the number of consumers, 2",
        ),
    ],
)
def test_invalid_bodies_are_rejected(
    api: Api, load_cloud: LoadCloud, sent: dict[str, Any], reason: str
) -> None:
    load_cloud(read("h{VCPU8}"))
    for dry_run in [False, True] if "dry_run" not in sent else [False]:
        response = api("POST", "/claims", json={**({"dry_run": True} if dry_run else {}), **sent})
        assert response.status_code == 400, response.json
        assert reason in error(response)["detail"]
        assert "code" in error(response)
    assert api("GET", "/consumers").json["consumers"] == []


def test_path_needs_no_header_and_the_role_of_a_claim(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{VCPU8}"))
    assert api("POST", "/claims", json=body(A), version="1.0").status_code == 200
    response = api("POST", "/claims", json=body(B), headers={"X-Auth-Token": "user:p"})
    assert response.status_code == 403
    assert api("GET", "/claims").status_code == 405


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("is_full", [False, True])
def test_a_repeated_call_is_a_generation_conflict(
    api: Api, load_cloud: LoadCloud, dry_run: bool, is_full: bool
) -> None:
    load_cloud(read("h{VCPU8}" if is_full else "h{VCPU80}"))
    assert api("POST", "/claims", json=body(A, B)).status_code == 200

    response = api("POST", "/claims", json=body(C, B, dry_run=dry_run))

    assert response.status_code == 409
    assert error(response)["code"] == "placement.concurrent_update"
    assert allocations(api, C) == {}


def test_unknown_consumer_with_a_generation_is_a_conflict(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{VCPU8}"))
    for dry_run in (False, True):
        sent = {"request": "resources=VCPU:1", "consumers": [consumer(A, 1)], "dry_run": dry_run}
        response = api("POST", "/claims", json=sent)
        assert response.status_code == 409
        assert error(response)["code"] == "placement.concurrent_update"


def test_dry_run_changes_nothing_and_waits_for_nothing(
    api: Api, load_cloud: LoadCloud, engine: Engine
) -> None:
    load_cloud(read("h{VCPU8}"))
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE consumers, inventories, resource_providers IN EXCLUSIVE MODE"))
        response = api("POST", "/claims", json=body(A, B, dry_run=True))
        refused = api("POST", "/claims", json=body(A, B, C, dry_run=True))
    assert [claim["consumer_generation"] for claim in response.json["claims"]] == [1, 1]
    assert response.json["claims"][1]["allocations"] == {uuid_of("h"): {"resources": {"VCPU": 4}}}
    assert refused.status_code == 409
    assert error(refused)["placeable"] == 2
    assert api("GET", "/consumers").json["consumers"] == []


@pytest.fixture
def after_each_search(app: Flask) -> Any:
    """A function that sets what happens after each search, before what it has found is claimed."""
    hooks: list[Callable[[], None]] = []
    engine = app.extensions["database"].engine
    searched = False

    def sends(*_: Any) -> None:
        # A claim is sent by the driver itself, without this event.
        nonlocal searched
        searched = True

    def ends(*_: Any) -> None:
        nonlocal searched
        if hooks and searched:
            hooks[0]()
        searched = False

    event.listen(engine, "before_cursor_execute", sends)
    event.listen(engine, "checkin", ends)
    yield hooks.append
    event.remove(engine, "before_cursor_execute", sends)
    event.remove(engine, "checkin", ends)


def swap_reserved(engine: Engine, steps: list[tuple[str, str | None]]) -> Callable[[], None]:
    """Return a function that reserves all VCPU of one host and frees those of another, step after step."""

    def run() -> None:
        if steps:
            full, free = steps.pop(0)
            with engine.begin() as connection:
                connection.execute(
                    text(
                        "UPDATE inventories SET reserved = CASE name WHEN :full THEN total ELSE 0 END"
                        "  FROM resource_providers"
                        " WHERE resource_providers.id = provider_id AND name IN (:full, :free)"
                    ),
                    {"full": full, "free": free},
                )

    return run


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_race_is_searched_again(
    api: Api, load_cloud: LoadCloud, engine: Engine, after_each_search: Any, lost: int
) -> None:
    """Only one of two hosts is free at a time, and after the search the other one is."""
    load_cloud(read("g{VCPU4}; h{VCPU4 res4}"))
    swaps: list[tuple[str, str | None]] = [("g", "h"), ("h", "g"), ("g", "h")]
    after_each_search(swap_reserved(engine, swaps[:lost]))

    response = api("POST", "/claims", json=body(A))

    assert response.status_code == 200, response.json
    assert response.json["attempts"] == lost + 1
    assert allocations(api, A) == {uuid_of("g" if lost == 2 else "h"): {"VCPU": 4}}


def test_an_exclusive_attempt_notices_what_it_has_not_locked(
    api: Api, load_cloud: LoadCloud, engine: Engine, after_each_search: Any
) -> None:
    """Between its search and its locks, the only free host changes once more."""
    load_cloud(read("g{VCPU4}; h{VCPU4 res4}"))
    swaps: list[tuple[str, str | None]] = [("g", "h"), ("h", "g"), ("g", "h"), ("h", "g")]
    after_each_search(swap_reserved(engine, swaps))

    response = api("POST", "/claims", json=body(A, B, request="resources=VCPU:2"))

    assert response.status_code == 200, response.json
    assert response.json["attempts"] == 6
    assert allocations(api, A) == allocations(api, B) == {uuid_of("g"): {"VCPU": 2}}


def test_an_exclusive_attempt_leaves_nothing_of_unplaced_consumers(
    api: Api, load_cloud: LoadCloud, engine: Engine, after_each_search: Any
) -> None:
    load_cloud(read("g{VCPU4}; h{VCPU4 res4}"))
    after_each_search(swap_reserved(engine, [("g", "h"), ("h", "g"), ("g", "h")]))
    response = api("POST", "/claims", json=body(A, B, request="resources=VCPU:3", min_count=1))
    assert response.status_code == 200, response.json
    assert response.json["attempts"] == 4
    assert response.json["unplaced"] == [B]
    assert [each["uuid"] for each in api("GET", "/consumers").json["consumers"]] == [A]


def test_a_move_by_an_exclusive_attempt(
    api: Api, load_cloud: LoadCloud, engine: Engine, after_each_search: Any
) -> None:
    load_cloud(read("f{VCPU2}; g{VCPU4 res4}; h{VCPU4 res4}"))
    assert api("POST", "/claims", json=body(A, request="resources=VCPU:2")).status_code == 200
    swap_reserved(engine, [("h", "g")])()
    after_each_search(swap_reserved(engine, [("g", "h"), ("h", "g"), ("g", "h")]))
    sent = {"request": "resources=VCPU:3", "consumers": [consumer(A, 1)]}
    response = api("POST", "/claims", json=sent)
    assert response.status_code == 200, response.json
    assert allocations(api, A) == {uuid_of("h"): {"VCPU": 3}}
    assert response.json["claims"][0]["consumer_generation"] == 2
    usages = api("GET", f"/resource_providers/{uuid_of('f')}/usages").json["usages"]
    assert usages == {"VCPU": 0}


def test_a_call_is_refused_by_what_is_left_after_a_lost_race(
    api: Api, load_cloud: LoadCloud, engine: Engine, after_each_search: Any
) -> None:
    load_cloud(read("g{VCPU4}"))
    after_each_search(swap_reserved(engine, [("g", None)]))
    response = api("POST", "/claims", json=body(A))
    assert response.status_code == 409
    assert error(response)["code"] == "placement_svc.no_candidates"
    assert api("GET", "/consumers").json["consumers"] == []


def test_consumers_are_moved(api: Api, load_cloud: LoadCloud) -> None:
    """Both hosts are full, so only what the consumers themselves have is free."""
    load_cloud(read("g{VCPU4}; h{VCPU4}"))
    placed = api("POST", "/claims", json=body(A, B)).json["claims"]
    [at_g] = [each["consumer_uuid"] for each in placed if each["root"]["name"] == "g"]
    [other] = {A, B} - {at_g}

    def move(*consumers: Any, request: str, dry_run: bool = False) -> Any:
        sent = {"request": request, "consumers": consumers, "dry_run": dry_run}
        return api("POST", "/claims", json=sent)

    elsewhere = f"resources=VCPU:4&member_of=!{uuid_of('aggregate')}"
    at_aggregates = f"/resource_providers/{uuid_of('g')}/aggregates"
    joined = {**api("GET", at_aggregates).json, "aggregates": [uuid_of("aggregate")]}
    assert api("PUT", at_aggregates, json=joined).status_code == 200

    refused = move(consumer(at_g, 1), request=elsewhere)
    assert refused.status_code == 409
    assert error(refused)["placeable"] == 0
    assert error(refused)["explanation"].endswith(f"&ignore_consumer={at_g}")
    assert api("GET", error(refused)["explanation"]).json["has_candidates"] is False

    [resized] = move(consumer(at_g, 1), request="resources=VCPU:3", dry_run=True).json["claims"]
    assert resized["consumer_generation"] == 2
    assert allocations(api, at_g) == {uuid_of("g"): {"VCPU": 4}}
    assert move(consumer(at_g, 1), request="resources=VCPU:3").json["claims"] == [resized]
    assert allocations(api, at_g) == {uuid_of("g"): {"VCPU": 3}}

    outdated = move(consumer(at_g, 1), consumer(other, 1), request="resources=VCPU:1")
    assert outdated.status_code == 409
    assert error(outdated)["code"] == "placement.concurrent_update"

    response = move(consumer(other, 1), consumer(C), consumer(at_g, 2), request="resources=VCPU:2")
    assert response.status_code == 200, response.json
    assert [claim["consumer_generation"] for claim in response.json["claims"]] == [2, 1, 3]


def test_a_move_does_not_tolerate_overcommitted_hosts(
    api: Api, load_cloud: LoadCloud, engine: Engine
) -> None:
    load_cloud(read("g{VCPU8}"))
    api("POST", "/claims", json=body(A, B))
    at_inventory = f"/resource_providers/{uuid_of('g')}/inventories/VCPU"
    inventory = {**api("GET", at_inventory).json, "total": 5}
    assert api("PUT", at_inventory, json=inventory).status_code == 200
    for amount, status in ((4, 409), (2, 409), (1, 200)):
        sent = {"request": f"resources=VCPU:{amount}", "consumers": [consumer(A, 1)]}
        assert api("POST", "/claims", json=sent).status_code == status


def test_a_move_that_an_overcommitted_host_would_allow_is_searched_again(
    api: Api, load_cloud: LoadCloud, engine: Engine, after_each_search: Any
) -> None:
    """After the search the host loses what was free, but a PUT could still replace what the consumer has."""
    load_cloud(read("g{VCPU8}"))
    api("POST", "/claims", json=body(A))
    after_each_search(swap_reserved(engine, [("g", None)]))
    response = api("POST", "/claims", json={"request": "resources=VCPU:4", "consumers": [consumer(A, 1)]})
    assert response.status_code == 409
    assert error(response)["code"] == "placement_svc.no_candidates"
    assert allocations(api, A) == {uuid_of("g"): {"VCPU": 4}}


@pytest.mark.parametrize("count", [1, 100])
def test_statements_do_not_grow_with_the_consumers(
    new_app: NewApp, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    # In the only session, the first call draws the roots at which this one starts.
    monkeypatch.setattr(random_root, "DRAWN_SECONDS", math.inf)
    app = new_app(pool_size=1)
    client = app.test_client()
    load_cloud(read("; ".join(f"h{number}{{VCPU8}}" for number in range(60))))
    uuids = [uuid_of(f"server {number}") for number in range(count)]
    assert client.post("/claims", json=body(uuid_of("first")), headers=ADMIN).status_code == 200
    with sent_statements(app.extensions["database"].engine) as statements:
        response = client.post("/claims", json=body(*uuids), headers=ADMIN)
    assert response.status_code == 200, response.json
    # Names, anchors and suppliers. The claim is one more, sent by the driver itself.
    assert len(statements) == 3 if count == 1 else len(statements) <= 10, statements


ON_PAPER = "g{VCPU8 used2}; h{VCPU8}; i{VCPU4}"
"""6, 8 and 4 VCPU are free."""


@pytest.mark.parametrize(
    ("order_by", "roots"),
    [
        # 8 6 4, 5 6 4, 5 3 4, 2 3 4, 2 3 1
        ("spread:VCPU", ["h", "g", "h", "i"]),
        # 4 is the least of all that suffices, then 6 and 3, and then 8.
        ("pack:VCPU", ["i", "g", "g", "h"]),
    ],
)
def test_each_consumer_gets_the_best_of_what_is_left(
    api: Api, load_cloud: LoadCloud, order_by: str, roots: list[str]
) -> None:
    load_cloud(read(ON_PAPER))
    uuids = [uuid_of(f"server {number}") for number in range(4)]
    response = api("POST", "/claims", json=body(*uuids, request=f"resources=VCPU:3&order_by={order_by}"))
    assert [claim["root"]["name"] for claim in response.json["claims"]] == roots


def test_packing_a_sharing_provider_makes_the_trees_that_it_serves_better(
    api: Api, load_cloud: LoadCloud
) -> None:
    """Three hosts have the same key until the pool of the first one has less free, and the third one too."""
    first, second, third = sorted("ghi", key=uuid_of)
    pools = "s{DISK_GB10}$@A; t{DISK_GB10}$@B"
    load_cloud(read(f"{pools}; {first}{{VCPU1}}@A; {second}{{VCPU1}}@B; {third}{{VCPU1}}@A"))
    uuids = [uuid_of(f"server {number}") for number in range(3)]
    request = "resources=VCPU:1,DISK_GB:4&order_by=pack:DISK_GB"
    with small_batches():
        response = api("POST", "/claims", json=body(*uuids, request=request))
    assert [claim["root"]["name"] for claim in response.json["claims"]] == [first, third, second]


@pytest.mark.parametrize("order_by", ["random", "spread:VCPU", "pack:VCPU"])
def test_preferred_traits_come_before_the_order(api: Api, load_cloud: LoadCloud, order_by: str) -> None:
    load_cloud(read("g{VCPU8}; h{VCPU6}#HW_NUMA_ROOT; i{VCPU4}"))
    request = f"resources=VCPU:3&preferred=HW_NUMA_ROOT&order_by={order_by}"
    response = api("POST", "/claims", json=body(A, B, C, request=request))
    names = [claim["root"]["name"] for claim in response.json["claims"]]
    assert names[:2] == ["h", "h"]
    assert names[2] in "gi"


@pytest.mark.parametrize(
    "order_by", ["", "&order_by=random", "&order_by=spread:DISK_GB", "&order_by=pack:DISK_GB"]
)
def test_all_candidates_are_used_when_a_preferred_provider_of_all_trees_is_full(
    api: Api, load_cloud: LoadCloud, order_by: str
) -> None:
    """Only the shared storage has the trait, so all trees have the best score until it is full."""
    load_cloud(read("g{DISK_GB6}@X; h{DISK_GB6}@X; s{DISK_GB4}$#STORAGE_DISK_SSD@X"))
    request = f"resources=DISK_GB:3&preferred=STORAGE_DISK_SSD{order_by}"
    uuids = [uuid_of(f"server {number}") for number in range(5)]
    response = api("POST", "/claims", json=body(*uuids, request=request))
    assert response.status_code == 200, response.json
    suppliers = [provider for claim in response.json["claims"] for provider in claim["allocations"]]
    assert suppliers[0] == uuid_of("s")
    assert sorted(suppliers[1:]) == sorted([uuid_of("g"), uuid_of("h")] * 2)


@pytest.mark.parametrize(
    ("order_by", "count", "most"),
    [
        ("pack:VCPU", 1, 40),
        ("pack:VCPU", 3, 40),
        ("spread:DISK_GB", 3, 40),
        ("pack:DISK_GB", 1, 40),
        # All 50 hosts of the fullest pool, as its first claim puts them before all others.
        ("pack:DISK_GB", 3, 90),
    ],
)
def test_claims_of_hosts_with_shared_storage_read_few_trees(
    api: Api, load_cloud: LoadCloud, order_by: str, count: int, most: int
) -> None:
    pools = [f"s{n}{{DISK_GB{90 + n}}}$@A{n}" for n in range(5)]
    load_cloud(read("; ".join([*pools, *(f"h{n}{{VCPU{n + 1}}}@A{n % 5}" for n in range(250))])))
    uuids = [uuid_of(f"server {number}") for number in range(count)]
    request = f"resources=VCPU:1,DISK_GB:1&order_by={order_by}"
    assert api("POST", "/claims", json=body(*uuids, request=request)).status_code == 200
    assert request_stats.current().anchors <= most


@pytest.mark.parametrize("options", ["", "&order_by=random", "&preferred=HW_NUMA_ROOT"])
@pytest.mark.usefixtures("clean_database")
def test_claims_begin_at_different_hosts_and_use_each_in_turn(api: Api, options: str) -> None:
    """The uuids of the hosts differ only at their ends, as those of uuid7."""
    hosts = [f"a0000000-0000-4000-8000-{number:012}" for number in range(8)]
    for uuid in hosts:
        assert api("POST", "/resource_providers", json={"name": uuid, "uuid": uuid}).status_code == 200
        inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
        assert api("PUT", f"/resource_providers/{uuid}/inventories", json=inventories).status_code == 200
        traits = {"resource_provider_generation": 1, "traits": ["HW_NUMA_ROOT"]}
        assert api("PUT", f"/resource_providers/{uuid}/traits", json=traits).status_code == 200

    def roots(how_many: int) -> list[str]:
        uuids = [uuid_of(f"server {number}") for number in range(how_many)]
        sent = body(*uuids, request=f"resources=VCPU:1{options}", dry_run=True)
        return [claim["root"]["name"] for claim in api("POST", "/claims", json=sent).json["claims"]]

    assert sorted(roots(8)) == hosts
    # The probability that at most three hosts come first is 10 to the power of -15.
    assert len({root for _ in range(40) for root in roots(1)}) > 3


HOSTS = 1_000
IMPOSSIBLE = (
    "resources=DISK_GB:20&resources_1=VCPU:2&resources_2=VCPU:2&resources_3=VCPU:2&group_policy=isolate"
)
"""Hosts have two NUMA nodes."""


@pytest.mark.parametrize("order", ["spread:VCPU", "pack:VCPU", "random"])
def test_few_trees_are_read_for_one_consumer(api: Api, engine: Engine, order: str) -> None:
    large_cloud.fill(engine, HOSTS)
    sent = body(A, request=f"resources=DISK_GB:20&resources_1=VCPU:2&order_by={order}")
    assert api("POST", "/claims", json=sent).status_code == 200
    assert request_stats.current().anchors < 20


@pytest.mark.parametrize("options", ["", "&order_by=spread:VCPU", "&order_by=random"])
def test_few_trees_are_read_if_combination_rules_exclude_all(api: Api, engine: Engine, options: str) -> None:
    large_cloud.fill(engine, HOSTS)
    response = api("POST", "/claims", json=body(A, request=IMPOSSIBLE + options))
    assert response.status_code == 409
    assert request_stats.current().anchors < 200


def test_shared_storage_is_filled_first(api: Api, load_cloud: LoadCloud) -> None:
    """Each claim makes the storage of two hosts fuller, so both stay the best ones until it is full."""
    load_cloud(read("g{VCPU9}@X; h{VCPU9}@X; i{VCPU9}@Y; s{DISK_GB4}$@X; t{DISK_GB5}$@Y"))
    uuids = [uuid_of(f"server {number}") for number in range(6)]
    request = "resources=VCPU:1,DISK_GB:1&order_by=pack:DISK_GB"
    response = api("POST", "/claims", json=body(*uuids, request=request))
    disks = [set(claim["allocations"]) & {uuid_of("s"), uuid_of("t")} for claim in response.json["claims"]]
    assert disks == [{uuid_of("s")}] * 4 + [{uuid_of("t")}] * 2
    first = min("gh", key=uuid_of)
    assert [claim["root"]["name"] for claim in response.json["claims"]] == [first] * 4 + ["i"] * 2


@pytest.mark.parametrize("order_by", ["spread:VCPU", "pack:VCPU"])
def test_an_exclusive_attempt_keeps_the_order(
    api: Api, load_cloud: LoadCloud, engine: Engine, after_each_search: Any, order_by: str
) -> None:
    load_cloud(read("g{VCPU4}; h{VCPU4 res4}"))
    after_each_search(swap_reserved(engine, [("g", "h"), ("h", "g"), ("g", "h")]))
    sent = body(A, request=f"resources=VCPU:4&order_by={order_by}")
    response = api("POST", "/claims", json=sent)
    assert response.json["attempts"] == 4
    assert allocations(api, A) == {uuid_of("h"): {"VCPU": 4}}


def test_an_exclusive_attempt_searches_again_what_it_has_locked(
    api: Api, load_cloud: LoadCloud, engine: Engine, after_each_search: Any
) -> None:
    """Between its search and its locks, the best host is lost; the next ones are locked too."""
    load_cloud(read("f{VCPU3}; g{VCPU4}; h{VCPU4 res4}; i{VCPU2}"))
    after_each_search(swap_reserved(engine, [("g", "h"), ("h", "g"), ("g", "h"), ("h", None)]))
    response = api("POST", "/claims", json=body(A, request="resources=VCPU:2&order_by=spread:VCPU"))
    assert response.json["attempts"] == 5
    assert allocations(api, A) == {uuid_of("f"): {"VCPU": 2}}


def test_ordered_statements_do_not_grow_with_the_consumers(
    api: Api, load_cloud: LoadCloud, app: Flask
) -> None:
    load_cloud(read("; ".join(f"h{number}{{VCPU8}}" for number in range(60))))
    counts = []
    for count in (1, 100):
        uuids = [uuid_of(f"server {count} {number}") for number in range(count)]
        sent = body(*uuids, request="resources=VCPU:1&order_by=spread:VCPU")
        with sent_statements(app.extensions["database"].engine) as statements:
            assert api("POST", "/claims", json=sent).status_code == 200
        counts.append(len(statements))
    assert counts[0] <= 6
    assert counts[1] <= 12


def test_at_the_deadline_nothing_has_changed(
    api: Api, new_app: NewApp, load_cloud: LoadCloud, engine: Engine
) -> None:
    """Another transaction keeps the search waiting for longer than the deadline."""
    load_cloud(read("h{VCPU8}"))
    assert api("POST", "/claims", body(C)).status_code == 200
    client = new_app(request_deadline=0.5).test_client()
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE inventories IN ACCESS EXCLUSIVE MODE"))
        response = client.post("/claims", json=body(A), headers=ADMIN)
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert "place fewer consumers" in error(response)["detail"]
    assert "limit" not in error(response)["detail"]
    assert allocations(api, A) == {}
