"""docs/operations.md shows the real startup report, metrics, log fields and probes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from prometheus_client.parser import text_string_to_metric_families

from placement_svc.config import Settings
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.connections.standbys import StandbyReads
from placement_svc.domain.execution.request_stats import RequestStats
from placement_svc.http.probes import PATHS
from placement_svc.observability.access_log import CompletedRequest, log_fields
from placement_svc.observability.metrics import Metrics
from placement_svc.server import serve as server
from tests.conftest import NewApp

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def claim() -> CompletedRequest:
    """Return a completed claim, which succeeded at the second attempt."""
    values = {
        "method": "PUT",
        "path": "/allocations/x",
        "query": "",
        "body_bytes": 100,
        "route": "/allocations/<consumer_uuid>",
        "endpoint": "allocations.replace_consumer_allocations",
        "status": 204,
        "microversion": "1.39",
        "request_id": "req-1",
        "global_request_id": None,
        "user_id": "admin",
        "project_id": "admin",
        "client": "127.0.0.1",
        "error": None,
        "seconds": 1.0,
        "stats": RequestStats(retries=1),
    }
    return CompletedRequest(**values)


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_metrics_are_those_of_the_service(app: Flask, new_app: NewApp, tmp_path: Path) -> None:
    (tmp_path / "watched.yaml").write_text("m1.large: resources=VCPU:4")
    (tmp_path / "zones.yaml").write_text("zone-a: b0000000-0000-4000-8000-000000000000")
    watching = new_app(watched_requests=tmp_path / "watched.yaml", watched_aggregates=tmp_path / "zones.yaml")
    listed = re.findall(r"^\| `(placement_\w+)` \|", section("Metrics"), re.M)
    served = re.findall(r"^# HELP (\w+)", watching.test_client().get("/metrics").text, re.M)
    assert sorted(listed) == sorted(served)


def test_labels_are_those_of_the_service(app: Flask) -> None:
    listed = re.findall(r"^\| `(placement_\w+)` \| (.*?) ?\| ", section("Metrics"), re.M)
    labels = {name: re.findall(r"`(\w+)`", names) for name, names in listed}
    database = Database(connect("postgresql://127.0.0.1:1/none"))
    metrics = Metrics(database, StandbyReads(database, []))
    metrics.count(claim())
    for family in text_string_to_metric_families(metrics.response().get_data(as_text=True)):
        name = family.name + ("_total" if family.type == "counter" else "")
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(labels[name]), name


def test_report_is_the_one_that_is_printed(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(database_url=database_url, log_format="console")
    server.print_report(
        server.startup_report(settings, "http://127.0.0.1:8778", "db", workers=2, threads=4), settings
    )
    printed = capsys.readouterr().err
    [shown] = re.findall(r"```\n(placement-svc\n.*?)```", section("Starting"), re.S)

    def without_database(report: str) -> list[str]:
        return [re.sub(r"(?<=  database  ).*", "", line) for line in report.splitlines()]

    assert without_database(printed) == without_database(shown)


def test_log_fields_are_those_of_a_request() -> None:
    of_requests, _ = section("Logs").split("Other lines")
    listed = {
        name
        for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", of_requests, re.M)
        for name in re.findall(r"\w+", row)
    }
    assert set(log_fields(replace(claim(), aborted=True), slow_seconds=0.0)) | {"event"} == listed


@pytest.mark.parametrize("path", PATHS)
def test_probe_is_documented(path: str) -> None:
    assert f"| `{path}` |" in section("Probes")
