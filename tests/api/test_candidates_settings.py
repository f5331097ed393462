"""What operators can set about allocation candidates: their order, their number, their time."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from werkzeug.test import TestResponse

from placement_svc.db.search import batches
from placement_svc.db.search.criteria import SearchCriteria
from tests.conftest import ADMIN, LoadCloud, NewApp
from tests.support.cloud import read, uuid_of

Get = Callable[[str], TestResponse]

HOSTS = 12
QUERY = "resources_a=VCPU:1"


@pytest.fixture
def asking(new_app: NewApp, load_cloud: LoadCloud) -> Callable[..., Get]:
    """A function that returns a caller of an application with these settings, on a cloud of hosts.

    Each host has two NUMA nodes with processors.
    """
    trees = (f"h{n}; h{n}a<h{n}{{VCPU8}}; h{n}b<h{n}{{VCPU8}}" for n in range(HOSTS))
    load_cloud(read("; ".join(trees)))

    def configured(**settings: Any) -> Get:
        client = new_app(pool_size=1, **settings).test_client()
        return lambda query: client.get(f"/allocation_candidates?{query}", headers=ADMIN)

    return configured


def suppliers(response: TestResponse) -> list[str]:
    """Return who supplies each candidate."""
    assert response.status_code == 200
    return [uuid for each in response.get_json()["allocation_requests"] for uuid in each["allocations"]]


NODES = {uuid_of(f"h{n}{node}") for n in range(HOSTS) for node in "ab"}
HOST_OF = {uuid_of(f"h{n}{node}"): n for n in range(HOSTS) for node in "ab"}


def test_same_request_has_the_same_answer(asking: Callable[..., Get]) -> None:
    get = asking()
    for query in (QUERY, f"{QUERY}&limit=5"):
        assert get(query).data == get(query).data


@pytest.mark.parametrize("limit", [1, 5, HOSTS, HOSTS + 1, 2 * HOSTS, 100])
def test_random_answers_are_complete(asking: Callable[..., Get], limit: int) -> None:
    found = suppliers(asking(randomize_candidates=True)(f"{QUERY}&limit={limit}"))
    assert len(found) == len(set(found)) == min(limit, len(NODES))
    assert NODES.issuperset(found)
    assert len({HOST_OF[uuid] for uuid in found}) == min(limit, HOSTS)


def test_random_answers_without_a_limit_are_complete(asking: Callable[..., Get]) -> None:
    get = asking(randomize_candidates=True)
    first = suppliers(get(QUERY))
    assert sorted(first) == sorted(NODES)
    assert any(suppliers(get(QUERY)) != first for _ in range(20))


@pytest.mark.parametrize("query", [f"{QUERY}&limit=1", f"{QUERY}&in_tree_a={uuid_of('h3')}&limit=1"])
def test_random_answers_come_from_everywhere(asking: Callable[..., Get], query: str) -> None:
    get = asking(randomize_candidates=True)
    awaited = {uuid_of("h3a"), uuid_of("h3b")} if "in_tree" in query else set(NODES)
    # A tree is drawn as often as the gap before its uuid is wide: each of these in at least 0.7 % of cases.
    # That one of its two nodes is never drawn in 10,000 cases has a probability of 10 to the power of -16.
    for _ in range(10_000):
        awaited.difference_update(suppliers(get(query)))
        if not awaited:
            break
    assert not awaited


def test_random_search_that_goes_on_behind_the_first_look_finds_all(
    asking: Callable[..., Get], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The roots are looked at one by one, and hardly any at first.
    monkeypatch.setattr(batches, "FIRST_SCAN", (0, 2))
    monkeypatch.setattr(SearchCriteria, "has_rare_criterion", lambda *_: False)
    get = asking(randomize_candidates=True)
    for _ in range(30):
        assert sorted(suppliers(get(f"{QUERY}&limit=100"))) == sorted(NODES)


@pytest.mark.parametrize(("asked", "given"), [("", 5), ("&limit=3", 3), ("&limit=5", 5), ("&limit=7", 5)])
def test_maximum_holds_whatever_the_limit(asking: Callable[..., Get], asked: str, given: int) -> None:
    assert len(suppliers(asking(max_candidates=5)(QUERY + asked))) == given


@pytest.mark.parametrize(("strategy", "hosts"), [("breadth-first", 6), ("depth-first", 3)])
def test_strategy_decides_how_many_hosts_a_limit_leaves(
    asking: Callable[..., Get], strategy: str, hosts: int
) -> None:
    found = suppliers(asking(candidates_strategy=strategy)(f"{QUERY}&limit=6"))
    assert len(found) == 6
    assert len({HOST_OF[uuid] for uuid in found}) == hosts


def test_strategy_does_not_matter_to_an_answer_without_limit(asking: Callable[..., Get]) -> None:
    assert sorted(suppliers(asking(candidates_strategy="depth-first")(QUERY))) == sorted(NODES)


def test_deadline_ends_a_request(asking: Callable[..., Get]) -> None:
    response = asking(request_deadline=1e-9)(f"{QUERY}&limit=5")
    assert response.status_code == 503
    assert "takes longer than 1e-09 seconds" in response.get_json()["errors"][0]["detail"]
