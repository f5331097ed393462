"""The settings of allocation candidates: order, number and deadline; and clients that disconnect."""

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine
from werkzeug.test import TestResponse

from placement_svc.api import candidates_response
from placement_svc.db.search import batches
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.domain.execution import deadline
from placement_svc.http import json
from placement_svc.http.environ import IS_CLIENT_GONE
from tests.conftest import ADMIN, LoadCloud, NewApp
from tests.support.cloud import read, uuid_of

Get = Callable[[str], TestResponse]

HOSTS = 12
QUERY = "resources_a=VCPU:1"


@pytest.fixture
def client_with(new_app: NewApp, load_cloud: LoadCloud) -> Callable[..., Get]:
    """A function that returns a client of an application with these settings.

    The cloud has hosts with two NUMA nodes each, which have processors.
    """
    trees = (f"h{n}; h{n}a<h{n}{{VCPU8}}; h{n}b<h{n}{{VCPU8}}" for n in range(HOSTS))
    load_cloud(read("; ".join(trees)))

    def configured(**settings: Any) -> Get:
        client = new_app(pool_size=1, **settings).test_client()
        return lambda query: client.get(f"/allocation_candidates?{query}", headers=ADMIN)

    return configured


def suppliers(response: TestResponse) -> list[str]:
    """Return the uuids of the suppliers of all candidates."""
    assert response.status_code == 200
    return [uuid for each in response.get_json()["allocation_requests"] for uuid in each["allocations"]]


NODES = {uuid_of(f"h{n}{node}") for n in range(HOSTS) for node in "ab"}
HOST_OF = {uuid_of(f"h{n}{node}"): n for n in range(HOSTS) for node in "ab"}


def test_same_request_has_the_same_response(client_with: Callable[..., Get]) -> None:
    get = client_with()
    for query in (QUERY, f"{QUERY}&limit=5"):
        assert get(query).data == get(query).data


@pytest.mark.parametrize("limit", [1, 5, HOSTS, HOSTS + 1, 2 * HOSTS, 100])
def test_random_responses_are_complete(client_with: Callable[..., Get], limit: int) -> None:
    found = suppliers(client_with(randomize_candidates=True)(f"{QUERY}&limit={limit}"))
    assert len(found) == len(set(found)) == min(limit, len(NODES))
    assert NODES.issuperset(found)
    assert len({HOST_OF[uuid] for uuid in found}) == min(limit, HOSTS)


def test_random_responses_without_a_limit_are_complete(client_with: Callable[..., Get]) -> None:
    get = client_with(randomize_candidates=True)
    first = suppliers(get(QUERY))
    assert sorted(first) == sorted(NODES)
    assert any(suppliers(get(QUERY)) != first for _ in range(20))


@pytest.mark.parametrize("query", [f"{QUERY}&limit=1", f"{QUERY}&in_tree_a={uuid_of('h3')}&limit=1"])
def test_random_responses_come_from_everywhere(client_with: Callable[..., Get], query: str) -> None:
    get = client_with(randomize_candidates=True)
    missing = {uuid_of("h3a"), uuid_of("h3b")} if "in_tree" in query else set(NODES)
    # The probability that one of the twelve nodes does not appear in 500 responses is 10 to the power of -17.
    for _ in range(500):
        missing.difference_update(suppliers(get(query)))
        if not missing:
            break
    assert not missing


def test_random_search_in_several_batches_finds_all(
    client_with: Callable[..., Get], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first batch scans only two roots.
    monkeypatch.setattr(batches, "FIRST_SCAN", (0, 2))
    monkeypatch.setattr(SearchCriteria, "has_rare_criterion", lambda *_: False)
    get = client_with(randomize_candidates=True)
    for _ in range(30):
        assert sorted(suppliers(get(f"{QUERY}&limit=100"))) == sorted(NODES)


@pytest.mark.parametrize(("limit", "expected"), [("", 5), ("&limit=3", 3), ("&limit=5", 5), ("&limit=7", 5)])
def test_maximum_applies_to_every_limit(client_with: Callable[..., Get], limit: str, expected: int) -> None:
    assert len(suppliers(client_with(max_candidates=5)(QUERY + limit))) == expected


@pytest.mark.parametrize(("strategy", "hosts"), [("breadth-first", 6), ("depth-first", 3)])
def test_candidate_order_decides_how_many_hosts_a_limit_leaves(
    client_with: Callable[..., Get], strategy: str, hosts: int
) -> None:
    found = suppliers(client_with(candidates_strategy=strategy)(f"{QUERY}&limit=6"))
    assert len(found) == 6
    assert len({HOST_OF[uuid] for uuid in found}) == hosts


def test_candidate_order_does_not_matter_without_a_limit(client_with: Callable[..., Get]) -> None:
    assert sorted(suppliers(client_with(candidates_strategy="depth-first")(QUERY))) == sorted(NODES)


def test_deadline_ends_a_request(client_with: Callable[..., Get]) -> None:
    response = client_with(request_deadline=1e-9)(f"{QUERY}&limit=5")
    assert response.status_code == 503
    assert "takes longer than 1e-09 seconds" in response.get_json()["errors"][0]["detail"]


@pytest.fixture
def disconnecting(
    new_app: NewApp, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], TestResponse]:
    """A function that requests all candidates; the client disconnects after so many checks of it."""
    monkeypatch.setattr(deadline, "CLIENT_CHECK_INTERVAL", 0)
    load_cloud(read("; ".join(f"h{n}{{VCPU8}}" for n in range(HOSTS))))
    client = new_app().test_client()

    def get(checks: int) -> TestResponse:
        answers = iter([False] * checks)
        environ = {IS_CLIENT_GONE: lambda: next(answers, True)}
        path = f"/allocation_candidates?{QUERY}"
        return client.get(path, headers=ADMIN, environ_overrides=environ, buffered=True)

    return get


def test_search_ends_when_the_client_disconnects(
    disconnecting: Callable[[int], TestResponse], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        response = disconnecting(1)
    assert (response.status_code, response.data) == (499, b"")
    access = [vars(each) for each in caplog.records if each.getMessage() == "request"]
    assert [each["status"] for each in access] == [499]
    assert not [each for each in caplog.records if each.exc_info]
    assert disconnecting(10_000).status_code == 200


def test_streamed_response_ends_when_the_client_disconnects(
    disconnecting: Callable[[int], TestResponse], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates_response, "ITEMS_PER_PIECE", 1)
    monkeypatch.setattr(json, "STREAMING_THRESHOLD", 1)
    assert disconnecting(10_000).json is not None
    responses = [disconnecting(checks) for checks in range(1, 4 * HOSTS)]
    cut = [each.data.count(b'"allocations"') for each in responses if each.status_code == 200]
    assert any(0 < count < HOSTS for count in cut)


def test_response_that_exceeds_the_deadline_is_aborted(
    new_app: NewApp,
    load_cloud: LoadCloud,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(json, "STREAMING_THRESHOLD", 2)
    load_cloud(read("; ".join(f"h{n}{{VCPU8}}; {n}c<h{n}{{VCPU8}}; {n}d<h{n}{{VCPU8}}" for n in range(9))))
    groups = "&".join(f"resources{n}=VCPU:1" for n in range(1, 17))
    client = new_app(request_deadline=60).test_client()
    with caplog.at_level(logging.INFO):
        response = client.get(f"/allocation_candidates?{groups}&group_policy=none", headers=ADMIN)
        assert response.status_code == 200
        monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 60))
        with pytest.raises(ConnectionResetError):
            list(response.response)
        response.close()
    access = [vars(each) for each in caplog.records if each.getMessage() in ("request", "slow request")]
    assert [each["aborted"] for each in access if "/allocation_candidates" in each["path"]] == [True]
    assert [each for each in caplog.records if "aborted after its start" in each.getMessage()]
    assert not [each for each in caplog.records if each.exc_info]
    counts = client.get("/metrics").text
    assert 'placement_responses_aborted_total{method="GET",route="/allocation_candidates"} 1.0' in counts


def test_response_of_long_items_is_streamed(
    client_with: Callable[..., Get], monkeypatch: pytest.MonkeyPatch
) -> None:
    get = client_with()
    whole = get(QUERY)
    monkeypatch.setattr(candidates_response, "PIECE_LENGTH", 1)
    monkeypatch.setattr(json, "STREAMING_THRESHOLD", HOSTS)
    streamed = get(QUERY)
    assert "Content-Length" in whole.headers
    assert "Content-Length" not in streamed.headers
    assert streamed.data == whole.data
    streamed.close()
