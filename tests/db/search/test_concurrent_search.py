"""What PostgreSQL looks for while candidates are combined (`placement_svc/db/search/candidates.py`)."""

from collections.abc import Callable

import pytest
from werkzeug.test import TestResponse

from placement_svc.db.search import candidates
from placement_svc.domain import candidates as combining
from tests.conftest import ADMIN, LoadCloud, NewApp
from tests.support.cloud import read
from tests.support.postgres_proxy import PostgresProxy

Get = Callable[[str], TestResponse]

HOSTS = 12
REST = "SELECT inventories.resource_class_id, (SELECT resource_classes.name"
QUERIES = {
    "a few": "resources=DISK_GB:1&resources_a=VCPU:1&limit=5",
    "no more than there are": "resources=DISK_GB:1&resources_a=VCPU:1&limit=100",
    "all": "resources=DISK_GB:1&resources_a=VCPU:1",
    "the last one, after looking again": "resources_a=VCPU:6&resources_b=VCPU:6&group_policy=none&limit=1",
}


@pytest.fixture(autouse=True)
def one_is_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MANY", 1)


@pytest.fixture
def get(postgres_proxy: PostgresProxy, new_app: NewApp, load_cloud: LoadCloud) -> Get:
    """A function that asks for candidates in a cloud of hosts with two NUMA nodes, by one connection."""
    room = [8] * (HOSTS - 1) + [12]
    trees = (f"h{n}{{DISK_GB8}}; h{n}a<h{n}{{VCPU{room[n]}}}; h{n}b<h{n}{{VCPU4}}" for n in range(HOSTS))
    load_cloud(read("; ".join(trees)))
    client = new_app(database_url=postgres_proxy.url, pool_size=1).test_client()
    return lambda query: client.get(f"/allocation_candidates?{query}", headers=ADMIN)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_answer_is_the_same(get: Get, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile = get(query)
    assert meanwhile.status_code == 200
    summaries = meanwhile.get_json()["provider_summaries"].values()
    assert summaries
    assert all(summary["resources"] for summary in summaries)
    monkeypatch.setattr(candidates, "MANY", HOSTS + 1)
    assert get(query).text == meanwhile.text


def test_lost_connection_is_not_noticed(get: Get, postgres_proxy: PostgresProxy) -> None:
    postgres_proxy.drop_connection_at(REST, delivered=True)
    answer = get(QUERIES["a few"])
    assert answer.status_code == 200
    assert answer.text == get(QUERIES["a few"]).text
    assert len([sent for sent in postgres_proxy.statements if sent.startswith(REST)]) == 2 + 1


def test_who_is_refused_meanwhile_leaves_a_connection_that_can_be_used(get: Get) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combining, "PATIENCE", 0)
        assert get(QUERIES["the last one, after looking again"]).status_code == 400
    assert get(QUERIES["the last one, after looking again"]).status_code == 200
