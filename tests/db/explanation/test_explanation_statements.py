"""The statements of an explanation, and how PostgreSQL may plan them."""

from typing import Any

import pytest
from flask import Flask
from sqlalchemy import event

from placement_svc.db import independent_fits
from placement_svc.db.explanation import answer, explain
from tests.conftest import Api, LoadCloud
from tests.support.cloud import read
from tests.support.statements import count_statements, sent_statements

PATH = "/allocation_candidates/explanation?relaxations=0&resources1=VCPU:4"
CAPACITY = "/allocation_candidates/capacity?resources1=VCPU:1"


def test_amounts_are_read_only_if_an_inventory_fails_a_filter(
    app: Flask, api: Api, load_cloud: LoadCloud
) -> None:
    load_cloud(read("h0{VCPU8}; h1{VCPU8}#HW_NUMA_ROOT; h2{DISK_GB1}"))
    passing = count_statements(app, lambda: api("GET", f"{PATH}&required1=COMPUTE_NODE"))
    failing = count_statements(app, lambda: api("GET", f"{PATH}0&required1=COMPUTE_NODE"))
    assert failing == passing + 1


@pytest.mark.parametrize(
    ("request_key", "computes"),
    [("resources1=FPGA:1", False), ("resources=FPGA:1", False), ("resources1=VCPU:9", True)],
    ids=["suffixed", "unsuffixed", "with-inventory"],
)
def test_gaps_are_computed_only_with_an_inventory(
    app: Flask, api: Api, load_cloud: LoadCloud, request_key: str, *, computes: bool
) -> None:
    load_cloud(read("h0{VCPU8}; h1{VCPU8}#HW_NUMA_ROOT; h2{DISK_GB1}; h3{FPGA1}"))
    with sent_statements(app.extensions["database"].engine) as sent:
        response = api("GET", f"/allocation_candidates/explanation?relaxations=0&{request_key}")
    assert len(response.json["nearest"]) == 3 + computes
    assert any("of_slots" in each.text for each in sent) == computes


@pytest.mark.parametrize(
    ("request_key", "returned", "searches"),
    [
        ("resources1=VCPU:4", 2, False),
        ("resources1=DISK_GB:4", 1, False),
        ("resources=VCPU:4,DISK_GB:4", 2, False),
        ("resources=VCPU:4,DISK_GB:4&limit=9", 2, True),
    ],
    ids=["own-tree", "suffixed", "unsuffixed", "limit"],
)
def test_candidates_are_generated_only_with_a_limit(
    api: Api,
    load_cloud: LoadCloud,
    monkeypatch: pytest.MonkeyPatch,
    request_key: str,
    *,
    returned: int,
    searches: bool,
) -> None:
    load_cloud(read("h0{VCPU8}@A; h1{VCPU8}; s{DISK_GB8}$@A"))
    searched: list[bool] = []

    def search_answer(*arguments: Any, **options: Any) -> answer.Answer:
        searched.append(True)
        return answer.search_answer(*arguments, **options)

    monkeypatch.setattr(explain, "search_answer", search_answer)
    body = api("GET", f"/allocation_candidates/explanation?relaxations=0&{request_key}").json
    assert bool(searched) == searches
    assert body["roots"]["returned"] == returned


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (f"{PATH}00", "bit_or"),
        (CAPACITY, "string_agg"),
        (f"{CAPACITY}&resources2=VCPU:1&group_policy=none", "examined_roots"),
        (CAPACITY, "free_0"),
    ],
    ids=["explanation", "independent-claims", "simulated-claims", "free"],
)
def test_statements_that_read_the_whole_cloud_have_serial_plans(
    app: Flask, api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch, path: str, part: str
) -> None:
    load_cloud(read("h0{VCPU8}"))
    monkeypatch.setattr(independent_fits, "has_few_roots", lambda _: False)
    engine = app.extensions["database"].engine
    workers: list[str] = []

    def read_setting(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if part in statement:
            with connection.connection.cursor() as cursor:
                cursor.execute("SHOW max_parallel_workers_per_gather")
                workers.extend(cursor.fetchone())

    event.listen(engine, "before_cursor_execute", read_setting)
    try:
        assert api("GET", path).status_code == 200
    finally:
        event.remove(engine, "before_cursor_execute", read_setting)
    assert set(workers) == {"0"}
