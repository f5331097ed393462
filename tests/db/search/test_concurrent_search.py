"""Fetching trees while candidates are combined and written (`placement_svc/db/search/trees.py`)."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from werkzeug.test import TestResponse

from placement_svc.api import candidates_response
from placement_svc.api.candidates_response import CandidatesResponse
from placement_svc.db.search import trees
from placement_svc.domain.combining import candidates as combining
from tests.conftest import ADMIN, LoadCloud, NewApp
from tests.support.cloud import read
from tests.support.postgres_proxy import PostgresProxy

Get = Callable[[str], TestResponse]

HOSTS = 12
PROVIDERS = "SELECT NULL AS anon_1, NULL AS anon__1, string_agg(CAST(resource_providers.id"
INVENTORIES = "SELECT inventories.resource_class_id, (SELECT resource_classes.name"
"""The beginnings of the statements of a thread."""

ONE_BATCH = {
    "a few": "resources=DISK_GB:1&resources_a=VCPU:1&limit=5",
    "fewer than the limit": "resources=DISK_GB:1&resources_a=VCPU:1&limit=100",
    "all": "resources=DISK_GB:1&resources_a=VCPU:1",
    "two providers of each tree": "resources_a=VCPU:1&resources_b=VCPU:1&group_policy=isolate&limit=5",
    "a trait of the roots": "resources=DISK_GB:1,VCPU:1&required=HW_CPU_X86_AVX",
}
QUERIES = {
    **ONE_BATCH,
    "the last tree, in a further batch": "resources_a=VCPU:6&resources_b=VCPU:6&group_policy=none&limit=1",
}


@pytest.fixture(autouse=True)
def always_concurrent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MIN_TREES_FOR_THREAD", 1)


@pytest.fixture
def get(postgres_proxy: PostgresProxy, new_app: NewApp, load_cloud: LoadCloud) -> Get:
    """A function that requests candidates, by one connection, in a cloud of hosts with two NUMA nodes."""
    totals = [8] * (HOSTS - 1) + [12]
    trees = (
        f"h{n}{{DISK_GB8}}#HW_CPU_X86_AVX; h{n}a<h{n}{{VCPU{totals[n]}}}; h{n}b<h{n}{{VCPU4}}"
        for n in range(HOSTS)
    )
    load_cloud(read("; ".join(trees)))
    app = new_app(database_url=postgres_proxy.url, pool_size=1, prepared_statements=False)
    client = app.test_client()
    return lambda query: client.get(f"/allocation_candidates?{query}", headers=ADMIN)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_response_is_the_same(get: Get, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    concurrent = get(query)
    assert concurrent.status_code == 200
    summaries = concurrent.get_json()["provider_summaries"].values()
    assert summaries
    assert all(summary["resources"] for summary in summaries)
    monkeypatch.setattr(trees, "MIN_TREES_FOR_THREAD", HOSTS + 1)
    assert get(query).text == concurrent.text


@pytest.mark.parametrize("query", ONE_BATCH.values(), ids=ONE_BATCH)
@pytest.mark.parametrize("max_pieces", [100, 2])
def test_allocation_requests_are_written_meanwhile(
    get: Get,
    postgres_proxy: PostgresProxy,
    query: str,
    max_pieces: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates_response, "ITEMS_PER_PIECE", 1)
    monkeypatch.setattr(candidates_response, "STREAMING_THRESHOLD", max_pieces)
    text = get(query).text
    generated: list[int] = []
    generate = CandidatesResponse.generate_while_fetching

    def generate_and_forward(response: CandidatesResponse) -> None:
        generate(response)
        generated.append(len(response._generated))
        held.close()

    monkeypatch.setattr(CandidatesResponse, "generate_while_fetching", generate_and_forward)
    with ExitStack() as held:
        held.enter_context(postgres_proxy.holding(INVENTORIES))
        assert get(query).text == text
    assert generated == [min(max_pieces, text.count("mappings"))]


@pytest.mark.parametrize("lost", [PROVIDERS, INVENTORIES], ids=["providers", "inventories"])
def test_lost_connection_is_not_visible_to_the_client(
    get: Get, postgres_proxy: PostgresProxy, lost: str
) -> None:
    postgres_proxy.drop_connection_at(lost, delivered=True)
    response = get(QUERIES["a few"])
    assert response.status_code == 200
    assert response.text == get(QUERIES["a few"]).text
    sent = [each for each in postgres_proxy.statements if each.startswith(lost)]
    assert len(sent) == 2 + 1


def test_refused_request_leaves_a_usable_connection(get: Get) -> None:
    query = "resources_a=VCPU:3&resources_b=VCPU:3&group_policy=isolate&limit=1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combining, "MAX_TRIED_SUPPLIERS", 0)
        assert get(query).status_code == 400
    assert get(query).status_code == 200
