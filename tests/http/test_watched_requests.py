"""The file of watched requests, and the metric that shows how often each can be claimed."""

import os
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from placement_svc.domain.errors import SetupError
from placement_svc.http.watched_names import MAX_NAMES
from placement_svc.http.watched_requests import read
from placement_svc.observability import metrics
from placement_svc.observability import watched_requests as metric_module
from tests.conftest import LoadCloud, NewApp
from tests.support.cloud import read as read_cloud

CONTENT = """
m1.small: resources=VCPU:3
"of two groups": resources_A=VCPU:3&resources_B=VCPU:1&group_policy=none
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "watched.yaml"
    path.write_text(CONTENT)
    return path


@pytest.fixture
def hosts(app: Flask, load_cloud: LoadCloud) -> None:
    load_cloud(read_cloud("n0{VCPU8 used2}; n1{VCPU8}"))


def shown(app: Flask) -> list[str]:
    """Return the samples of the metric."""
    response = app.test_client().get("/metrics")
    assert response.status_code == 200
    return [line for line in response.text.splitlines() if line.startswith("placement_request_fits{")]


def test_metric_shows_the_capacity_of_each_request(
    new_app: NewApp, hosts: None, file: Path, always_old: None
) -> None:
    assert shown(new_app(watched_requests=file)) == [
        'placement_request_fits{request="m1.small"} 4.0',
        'placement_request_fits{request="of two groups"} 3.0',
    ]


def test_metric_is_absent_without_the_setting(app: Flask) -> None:
    assert "placement_request_fits" not in app.test_client().get("/metrics").text


def test_failing_request_has_no_sample_and_leaves_the_others(
    new_app: NewApp, hosts: None, file: Path, always_old: None, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("bad: resources=VCPU:1&required=CUSTOM_UNKNOWN\ngood: resources=VCPU:8\n")
    assert shown(new_app(watched_requests=file)) == ['placement_request_fits{request="good"} 1.0']
    assert "The watched request bad failed: No such trait(s): CUSTOM_UNKNOWN" in caplog.text


def test_changed_file_is_read_again_unless_it_is_broken(
    new_app: NewApp, hosts: None, file: Path, always_old: None
) -> None:
    app = new_app(watched_requests=file)
    file.write_text("other: resources=VCPU:6")
    assert shown(app) == ['placement_request_fits{request="other"} 2.0']
    file.write_text("other: [")
    assert shown(app) == ['placement_request_fits{request="other"} 2.0']


def test_workers_share_the_results(
    new_app: NewApp,
    hosts: None,
    file: Path,
    tmp_path: Path,
    long_metrics_timeout: None,
    monkeypatch: pytest.MonkeyPatch,
    load_cloud: LoadCloud,
) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    monkeypatch.setitem(os.environ, metrics.DIRECTORY, str(directory))
    first, second = (new_app(watched_requests=file) for _ in range(2))

    before = shown(first)
    load_cloud(read_cloud("n2{VCPU3}"))

    assert before[0] == 'placement_request_fits{request="m1.small"} 4.0'
    assert shown(second) == before
    (directory / metric_module.RESULTS).unlink()
    assert shown(second)[0] == 'placement_request_fits{request="m1.small"} 5.0'


def test_one_worker_computes_at_a_time(
    new_app: NewApp,
    hosts: None,
    file: Path,
    always_old: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    monkeypatch.setitem(os.environ, metrics.DIRECTORY, str(directory))
    first, second = (new_app(watched_requests=file) for _ in range(2))
    nested: list[list[str]] = []
    count = metric_module.count_fits

    def count_slowly(*args: Any) -> Any:
        nested.append(shown(second))
        return count(*args)

    monkeypatch.setattr(metric_module, "count_fits", count_slowly)
    assert len(shown(first)) == 2
    assert nested == [[], []]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a: [", "is not YAML"),
        ("\xff", "is not YAML"),
        ("- resources=VCPU:1", "must map names to requests"),
        ("", "must map names to requests"),
        ("a: 1", "must have a query string for a, not 1"),
        ("1: resources=VCPU:1", "has the name 1"),
        ("'': resources=VCPU:1", "has the name ''"),
        ("a: resources=VCPU", "invalid request for a: Badly formed resources parameter"),
        ("a: resources=VCPU:1&color=red", "invalid request for a: Invalid query string parameters: 'color'"),
        ("a: resources=VCPU:1&max=0", "invalid request for a"),
        ("a: resources=VCPU:1&limit=3", "it cannot have 'limit'"),
        ("\n".join(f"n{number}: x" for number in range(MAX_NAMES + 1)), "has 101 requests"),
    ],
)
def test_invalid_file_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "watched.yaml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(SetupError) as caught:
        read(path, max_groups=10)
    assert str(caught.value).startswith(f"The file of watched requests {path} ")
    assert problem in str(caught.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be read: No such file"):
        read(tmp_path / "missing.yaml", max_groups=10)


def test_request_may_have_a_maximum_and_absent_trees(tmp_path: Path) -> None:
    path = tmp_path / "watched.yaml"
    path.write_text("a: resources=VCPU:1&max=7&without=0ee00000-0000-4000-8000-00000000000A")
    request = read(path, max_groups=10)["a"]
    assert (request.max_claims, request.without) == (7, ("0ee00000-0000-4000-8000-00000000000a",))
