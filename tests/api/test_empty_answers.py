"""The list of searches without candidates (`docs/spec/extensions.md 3.7`)."""

import socket
import time
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Engine, text

from placement_svc.db.connections.engine import Database, connect
from placement_svc.domain.execution.request_stats import RequestStats
from placement_svc.observability import empty_answers
from placement_svc.observability.access_log import CompletedRequest
from tests.conftest import ADMIN, Api, LoadCloud, NewApp, application
from tests.support.cloud import read
from tests.support.service import TIMEOUT, serving, wait_until

NOTHING = "/allocation_candidates?resources=VCPU:1"


def wait_for(api: Api, count: int, query: str = "") -> list[dict[str, str]]:
    """Return the empty answers as soon as there are `count`."""

    def answers() -> list[dict[str, str]]:
        found: list[dict[str, str]] = api("GET", f"/allocation_candidates/empty{query}").json["empty"]
        return found

    wait_until(lambda: len(answers()) >= count)
    found = answers()
    assert len(found) == count
    return found


@pytest.fixture(autouse=True)
def no_answers(app: Flask, engine: Engine) -> None:
    """Delete the answers of other tests, also those that are not stored yet."""
    app.extensions["empty_answers"].stop()
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM empty_answers"))


def test_search_without_candidates_is_found_by_either_request_id(api: Api) -> None:
    sent = f"req-{uuid4()}"
    response = api("GET", f"{NOTHING}&limit=5", headers={"X-Openstack-Request-Id": sent})
    response.close()
    assert response.json["allocation_requests"] == []
    [answer] = wait_for(api, 1)
    assert answer["query"] == "resources=VCPU:1&limit=5"
    assert answer["global_request_id"] == sent
    assert answer["request_id"] == response.headers["x-openstack-request-id"]
    assert (answer["user_id"], answer["project_id"]) == ("admin", "admin")
    for request_id in (sent, answer["request_id"]):
        assert wait_for(api, 1, f"?request_id={request_id}") == [answer]
    assert wait_for(api, 0, f"?request_id=req-{uuid4()}") == []


def test_answers_are_listed_in_pages_newest_first(api: Api) -> None:
    for amount in range(1, 6):
        api("GET", f"/allocation_candidates?resources=VCPU:{amount}").close()
        wait_for(api, amount)
    seen: list[str] = []
    path = "/allocation_candidates/empty?limit=2"
    while path:
        body = api("GET", path).json
        seen += [answer["query"] for answer in body["empty"]]
        path = body["links"][0]["href"] if body["links"] else ""
        assert not path or urlsplit(path).path == "/allocation_candidates/empty"
    assert seen == [f"resources=VCPU:{amount}" for amount in range(5, 0, -1)]


def test_marker_may_have_any_letter_case(api: Api) -> None:
    for amount in (1, 2):
        api("GET", f"/allocation_candidates?resources=VCPU:{amount}").close()
        newest, *_ = wait_for(api, amount)
    path = f"/allocation_candidates/empty?marker={newest['id'].upper()}"
    assert [answer["query"] for answer in api("GET", path).json["empty"]] == ["resources=VCPU:1"]


def test_times_are_in_utc_whatever_the_time_zone_of_the_database(
    api: Api, new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = datetime.now(UTC)
    api("GET", NOTHING).close()
    [answer] = wait_for(api, 1)
    assert answer["created_at"].endswith("Z")
    assert started <= datetime.fromisoformat(answer["created_at"]) <= datetime.now(UTC)
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    elsewhere = new_app().test_client()
    assert elsewhere.get("/allocation_candidates/empty", headers=ADMIN).json["empty"] == [answer]


def test_errors_and_searches_with_candidates_are_not_listed(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{VCPU1}"))
    for path in (NOTHING, "/allocation_candidates?resources=CUSTOM_NONE:1"):
        api("GET", path).close()
    api("GET", "/allocation_candidates?resources=VCPU:2").close()
    assert [answer["query"] for answer in wait_for(api, 1)] == ["resources=VCPU:2"]


def test_oldest_answers_are_deleted_and_long_queries_cut(app: Flask) -> None:
    settings = replace(app.extensions["settings"], empty_answers=3)
    with application(settings) as limited:
        client = limited.test_client()
        for amount in range(1, 6):
            aggregate = ",".join(str(uuid4()) for _ in range(300))
            client.get(f"{NOTHING.replace('1', str(amount))}&member_of=in:{aggregate}", headers=ADMIN).close()

        def queries() -> list[str]:
            listed = client.get("/allocation_candidates/empty", headers=ADMIN).json["empty"]
            return [answer["query"] for answer in listed]

        # They may be stored in several batches, and each is followed by a deletion.
        expected = [f"resources=VCPU:{amount}" for amount in (5, 4, 3)]
        wait_until(lambda: [query[:16] for query in queries()] == expected)
        assert all(len(query) == 8000 for query in queries())


def test_nothing_is_stored_with_the_setting_0(app: Flask, engine: Engine) -> None:
    settings = replace(app.extensions["settings"], empty_answers=0)
    with application(settings) as without:
        without.test_client().get(NOTHING, headers=ADMIN).close()
    # At its end, an application stores what it has not stored yet.
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT count(*) FROM empty_answers")) == 0


@pytest.mark.parametrize(
    "query",
    [
        "resources_A=VCPU:2&resources_B=VCPU:2&group_policy=none",
        "resources_A=VCPU:1&resources_B=DISK_GB:1&same_subtree=_A,_B&group_policy=none",
        "resources_A=VCPU:1&resources_B=DISK_GB:1&same_subtree=_A,_B&group_policy=none&limit=5",
    ],
)
def test_metric_counts_empty_answers_by_reason(app: Flask, load_cloud: LoadCloud, query: str) -> None:
    client = app.test_client()

    def counted() -> dict[str, float]:
        lines = client.get("/metrics").text.splitlines()
        found = [line.split() for line in lines if line.startswith("placement_empty_searches_total{")]
        return {name.split('"')[1]: float(value) for name, value in found}

    before = counted()
    client.get(NOTHING, headers=ADMIN).close()
    load_cloud(read("h; numa<h{VCPU3}; disk<h{DISK_GB1}"))
    client.get(f"/allocation_candidates?{query}", headers=ADMIN).close()
    after = counted()
    for reason in ("no_supplier", "combination"):
        assert after[reason] - before.get(reason, 0) == 1


def test_answers_of_the_last_second_are_stored_when_the_service_stops(
    app: Flask, api: Api, database_url: str
) -> None:
    queries = {f"resources=VCPU:{amount}" for amount in (101, 102, 103)}
    with serving(database_url=database_url) as service:
        for query in queries:
            assert service.get(f"/allocation_candidates?{query}")[0] == 200
        service.stop()
    # The list may also have answers of the tests before, which are stored late.
    stored = api("GET", "/allocation_candidates/empty").json["empty"]
    assert queries <= {answer["query"] for answer in stored}


def empty_search() -> CompletedRequest:
    """Return a completed search that has found no candidate."""
    return CompletedRequest(
        method="GET",
        path="/allocation_candidates",
        query="resources=VCPU:1",
        body_bytes=0,
        route="/allocation_candidates",
        endpoint=None,
        status=200,
        microversion="1.39",
        request_id="req-1",
        global_request_id=None,
        user_id="admin",
        project_id="admin",
        client=None,
        error=None,
        seconds=0.1,
        stats=RequestStats(candidates=0),
    )


def test_stop_does_not_wait_long_for_a_frozen_database() -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        url = f"postgresql://127.0.0.1:{frozen.getsockname()[1]}/none?connect_timeout={2 * TIMEOUT}"
        recorder = empty_answers.EmptyAnswerRecorder(Database(connect(url)), max_rows=10)
        started = time.monotonic()
        recorder.record(empty_search())
        recorder.stop()
        assert time.monotonic() - started < TIMEOUT / 2
