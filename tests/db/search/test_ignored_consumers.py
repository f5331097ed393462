"""Searches that ignore consumers: their statements, their limit, and who may send them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from flask import Flask

from tests.conftest import ADMIN, NewApp
from tests.support.cloud import read, uuid_of
from tests.support.statements import sent_statements
from tests.support.versions import EXTENDED

QUERY = "/allocation_candidates?resources=VCPU:6"
IGNORING = f"{QUERY}&ignore_consumer={uuid_of('other_consumer')}"
FULL = read("a{VCPU8 used8 other6}; b{VCPU8 used4}")


def test_ignoring_consumers_takes_one_more_statement(
    app: Flask, api: Callable[..., Any], load_cloud: Callable[..., None]
) -> None:
    load_cloud(FULL)
    texts = []
    for path in (QUERY.replace("6", "2"), IGNORING):
        with sent_statements(app.extensions["database"].engine) as sent:
            response = api("GET", path, version=EXTENDED)
        assert len(response.json["allocation_requests"]) == 1
        texts.append([statement.text for statement in sent])
    plain, ignoring = texts
    assert len(ignoring) == len(plain) + 1
    assert not any("allocations" in text for text in plain)
    assert sum("allocations" in text for text in ignoring) == 1


def test_at_most_a_thousand_consumers(api: Callable[..., Any], new_app: NewApp) -> None:
    keys = [f"&ignore_consumer={UUID(int=number)}" for number in range(1001)]
    assert api("GET", QUERY + "".join(keys[:1000]), version=EXTENDED).status_code == 200
    # PLACEMENT_MAX_ITEMS has the same default, and is checked first.
    client = new_app(max_items=2000).test_client()
    headers = ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"}
    response = client.get(QUERY + "".join(keys), headers=headers)
    assert response.status_code == 400
    assert response.json["errors"][0]["code"] == "placement.query.bad_value"
    assert "names 1001 consumers; at most 1,000 are allowed" in response.json["errors"][0]["detail"]


def test_ignoring_consumers_needs_the_rule_for_reading_their_allocations(
    new_app: NewApp, tmp_path: Path, clean_database: Callable[[], None]
) -> None:
    policy = tmp_path / "policy.yaml"
    rules = ("list", "explain", "capacity")
    policy.write_text("".join(f'"placement:allocation_candidates:{rule}": "role:reader"\n' for rule in rules))
    client = new_app(policy_file=policy).test_client()
    headers = {
        "X-Auth-Token": "user:project",
        "X-Roles": "reader",
        "OpenStack-API-Version": f"placement {EXTENDED}",
    }
    for suffix in ("", "/explanation", "/capacity"):
        plain = client.get(QUERY.replace("?", f"{suffix}?"), headers=headers)
        assert plain.status_code == 200, plain.text
        ignoring = client.get(IGNORING.replace("?", f"{suffix}?"), headers=headers)
        assert ignoring.status_code == 403
        assert "placement:allocations:list" in ignoring.text
