"""Placements agree with the oracle: each is a candidate of what is left, and none is refused without need."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.conftest import Api, LoadCloud, examples
from tests.support.claims_oracle import consumer, follow
from tests.support.cloud import Cloud, uuid_of
from tests.support.fits_oracle import Claimer, TooManyStates
from tests.support.oracle import Request, candidates
from tests.support.small_batches import small_batches
from tests.support.strategies import scenarios, scenarios_with_pools

MAX_STATES = 200

_numbers = count()


def new_consumers(how_many: int) -> list[dict[str, Any]]:
    return [consumer(uuid_of(f"consumer {next(_numbers)}")) for _ in range(how_many)]


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(40),
)
@given(scenario=scenarios() | scenarios_with_pools(), how_many=st.integers(1, 5), reads_few=st.booleans())
def test_placements_agree_with_oracle(
    api: Api,
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
    how_many: int,
    reads_few: bool,
) -> None:
    clean_database()
    cloud, drawn = scenario
    requests = [replace(request, ignore_consumer=frozenset()) for request in drawn]
    load_cloud(cloud)
    for request in requests[:2]:
        note(f"cloud: {cloud}\nrequest: {request}")
        consumers = new_consumers(how_many)
        body = {"request": request.query(), "consumers": consumers}
        with small_batches() if reads_few else nullcontext():
            all_or_none = api("POST", "/claims", json={**body, "dry_run": True})
            response = api("POST", "/claims", json={**body, "min_count": 1})
        check_all_or_none(cloud, request, how_many, all_or_none)
        note(f"response: {response.json}")
        before = cloud
        cloud = check_as_many_as_possible(cloud, request, consumers, response)
        if response.status_code == 200:
            check_stored(api, response.json)
            cloud = check_move(api, before, requests[-1], response.json["claims"]) or cloud


def check_all_or_none(cloud: Cloud, request: Request, how_many: int, response: Any) -> None:
    """Compare a response with the runs of claims: one that ends early is a reason to refuse."""
    names = [provider.name for provider in cloud.providers if provider.parent is None]
    try:
        lengths = Claimer(request, names, MAX_STATES).run_lengths(cloud)
    except TooManyStates:
        lengths = None
    if response.status_code == 200:
        assert len(response.json["claims"]) == how_many
        follow(cloud, request, response.json["claims"])
    else:
        assert response.status_code == 409, response.json
        [error] = response.json["errors"]
        assert error["code"] == "placement_svc.no_candidates"
        assert error["placeable"] < how_many
        assert lengths is None or error["placeable"] in lengths


def check_as_many_as_possible(
    cloud: Cloud, request: Request, consumers: list[dict[str, Any]], response: Any
) -> Cloud:
    """Compare a response to a request that any consumer be placed; return the cloud afterwards."""
    if response.status_code != 200:
        assert response.status_code == 409, response.json
        assert response.json["errors"][0]["placeable"] == 0
        assert not candidates(cloud, request)
        return cloud
    body = response.json
    placed = [claim["consumer_uuid"] for claim in body["claims"]]
    assert placed + body["unplaced"] == [each["uuid"] for each in consumers]
    after = follow(cloud, request, body["claims"])
    assert not body["unplaced"] or not candidates(after, request)
    assert body["attempts"] == 1
    return after


def check_move(api: Api, before: Cloud, request: Request, claims: list[dict[str, Any]]) -> Cloud | None:
    """Move the consumers of `claims`, whose allocations count as free; return the cloud if they moved."""
    moved = [consumer(claim["consumer_uuid"], claim["consumer_generation"]) for claim in claims]
    body = {"request": request.query(), "consumers": moved}
    dry_run = api("POST", "/claims", json={**body, "dry_run": True})
    check_all_or_none(before, request, len(moved), dry_run)
    response = api("POST", "/claims", json=body)
    note(f"moved: {request}\n{response.json}")
    check_all_or_none(before, request, len(moved), response)
    if response.status_code != 200:
        return None
    assert all(claim["consumer_generation"] == 2 for claim in response.json["claims"])
    check_stored(api, response.json)
    return follow(before, request, response.json["claims"])


def check_stored(api: Api, body: dict[str, Any]) -> None:
    for claim in body["claims"]:
        stored = api("GET", f"/allocations/{claim['consumer_uuid']}").json
        assert stored["consumer_generation"] == claim["consumer_generation"]
        assert {uuid: each["resources"] for uuid, each in stored["allocations"].items()} == {
            uuid: each["resources"] for uuid, each in claim["allocations"].items()
        }
    for uuid in body["unplaced"]:
        assert api("GET", f"/allocations/{uuid}").json == {"allocations": {}}
