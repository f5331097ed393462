"""The file of watched aggregates, and the metrics with their amounts."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from placement_svc.domain.errors import SetupError
from placement_svc.http.watched_aggregates import read
from placement_svc.http.watched_names import MAX_NAMES
from placement_svc.observability import metrics
from tests.conftest import LoadCloud, NewApp
from tests.support import random_cloud
from tests.support.cloud import read as read_cloud
from tests.support.cloud import uuid_of
from tests.support.statements import sent_statements

SAMPLE = re.compile(r'placement_aggregate_(\w+)\{aggregate="([^"]+)",resource_class="(\w+)"\} (\S+)')
AMOUNTS = ("capacity", "used", "reserved")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "aggregates.yaml"
    path.write_text(f"zone-a: {uuid_of('a')}\nzone b: {uuid_of('b')}\nempty: {uuid_of('c')}\n")
    return path


def shown(app: Flask) -> dict[str, dict[str, dict[str, float]]]:
    """Return the samples of the metrics by aggregate, class and amount."""
    response = app.test_client().get("/metrics")
    assert response.status_code == 200
    found: dict[str, dict[str, dict[str, float]]] = {}
    for amount, aggregate, resource_class, value in SAMPLE.findall(response.text):
        found.setdefault(aggregate, {}).setdefault(resource_class, {})[amount] = float(value)
    return found


def test_metrics_show_the_amounts_of_each_aggregate(
    new_app: NewApp, load_cloud: LoadCloud, file: Path, always_old: None
) -> None:
    load_cloud(read_cloud("n0{VCPU8 res1 used2, DISK_GB100}@a; n0_0<n0{VCPU4 ratio2.0}; n1{VCPU16}@a,b"))
    assert shown(new_app(watched_aggregates=file)) == {
        "zone-a": {
            "VCPU": {"capacity": 31.0, "used": 2.0, "reserved": 1.0},
            "DISK_GB": {"capacity": 100.0, "used": 0.0, "reserved": 0.0},
        },
        "zone b": {"VCPU": {"capacity": 16.0, "used": 0.0, "reserved": 0.0}},
    }


@pytest.mark.parametrize("seed", range(3))
def test_amounts_are_those_of_the_groups_of_get_capacity(
    new_app: NewApp, call: Callable[..., Any], tmp_path: Path, always_old: None, seed: int
) -> None:
    random_cloud.fill(call, seed)
    groups = call("GET", "/capacity?group_by=aggregate")["groups"]
    expected = {
        group["aggregate"]: {
            name: {amount: of_class[amount] for amount in AMOUNTS}
            for name, of_class in group["resource_classes"].items()
        }
        for group in groups
        if group["aggregate"]
    }
    assert expected
    path = tmp_path / "aggregates.yaml"
    path.write_text("".join(f"of-{uuid}: {uuid}\n" for uuid in expected))
    found = shown(new_app(watched_aggregates=path))
    assert found == {f"of-{uuid}": amounts for uuid, amounts in expected.items()}


def test_one_statement_reads_all_aggregates(
    new_app: NewApp, load_cloud: LoadCloud, file: Path, always_old: None
) -> None:
    load_cloud(read_cloud("n0{VCPU8}@a; n1{VCPU16}@a,b; n2{VCPU3}@c"))
    app = new_app(watched_aggregates=file)
    with sent_statements(app.extensions["database"].engine) as sent:
        assert len(shown(app)) == 3
    assert len([statement for statement in sent if "provider_aggregates" in statement.text]) == 1


def test_metrics_are_absent_without_the_setting(app: Flask) -> None:
    assert "placement_aggregate_" not in app.test_client().get("/metrics").text


def test_changed_file_is_read_again_unless_it_is_broken(
    new_app: NewApp, load_cloud: LoadCloud, file: Path, always_old: None
) -> None:
    load_cloud(read_cloud("n0{VCPU8}@a; n1{VCPU16}@b"))
    app = new_app(watched_aggregates=file)
    assert set(shown(app)) == {"zone-a", "zone b"}
    file.write_text(f"other: {uuid_of('b')}")
    assert set(shown(app)) == {"other"}
    file.write_text("other: [")
    assert set(shown(app)) == {"other"}


def test_changed_uuid_of_a_name_never_shows_the_previous_aggregate(
    new_app: NewApp, load_cloud: LoadCloud, file: Path, long_metrics_timeout: None
) -> None:
    load_cloud(read_cloud("n0{VCPU8}@a; n1{VCPU16}@b"))
    file.write_text(f"zone: {uuid_of('a')}")
    app = new_app(watched_aggregates=file)
    assert shown(app)["zone"]["VCPU"]["capacity"] == 8
    file.write_text(f"zone: {uuid_of('b')}")
    assert shown(app) == {}


def test_workers_share_the_results(
    new_app: NewApp,
    load_cloud: LoadCloud,
    file: Path,
    tmp_path: Path,
    long_metrics_timeout: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    monkeypatch.setitem(os.environ, metrics.DIRECTORY, str(directory))
    first, second = (new_app(watched_aggregates=file) for _ in range(2))
    load_cloud(read_cloud("n0{VCPU8}@a"))
    before = shown(first)
    load_cloud(read_cloud("n1{VCPU3}@a"))

    assert before["zone-a"]["VCPU"]["capacity"] == 8
    assert shown(second) == before


def test_failure_is_logged_and_leaves_the_other_metrics(
    new_app: NewApp, file: Path, always_old: None, caplog: pytest.LogCaptureFixture
) -> None:
    app = new_app(watched_aggregates=file, database_url="postgresql://127.0.0.1:1/none")
    response = app.test_client().get("/metrics")
    assert "placement_pool_size_connections" in response.text
    assert SAMPLE.search(response.text) is None
    assert "The watched aggregates failed: " in caplog.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a: [", "is not YAML"),
        ("- b0000000-0000-4000-8000-000000000000", "must map names to aggregates"),
        ("a: 1", "must have a uuid for a, not 1"),
        ("1: b0000000-0000-4000-8000-000000000000", "has the name 1"),
        ("a: rack-7", "has an invalid aggregate for a: expected the uuid of an aggregate, got: rack-7"),
        ("\n".join(f"n{number}: x" for number in range(MAX_NAMES + 1)), "has 101 aggregates"),
    ],
)
def test_invalid_file_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "aggregates.yaml"
    path.write_text(content)
    with pytest.raises(SetupError) as caught:
        read(path)
    assert str(caught.value).startswith(f"The file of watched aggregates {path} ")
    assert problem in str(caught.value)


def test_uuid_keeps_its_spelling(tmp_path: Path) -> None:
    path = tmp_path / "aggregates.yaml"
    path.write_text("a: B0000000-0000-4000-8000-000000000000")
    assert read(path) == {"a": "B0000000-0000-4000-8000-000000000000"}
