"""The alerts, their unit tests and the queries of the dashboard, by the commands of Prometheus itself."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen
from uuid import uuid4

import pytest
import yaml

from tests.conftest import LoadCloud
from tests.support.cloud import read, uuid_of
from tests.support.monitoring import ROOT, RULES, RULES_FILE, dashboard_queries, metrics_of
from tests.support.service import TIMEOUT, Client, free_port, serving, wait_until

pytestmark = pytest.mark.prometheus

RARE = {
    "placement_responses_aborted_total",
    "placement_transaction_retries_total",
    "placement_standby_lag_seconds",
    "placement_standby_used",
}
"""Metrics that have no series before something rare happens, or without standbys."""

HOST = "host"
TOTAL = 1_000_000


def promtool(*arguments: str) -> None:
    finished = subprocess.run(["promtool", *arguments], capture_output=True, text=True, cwd=ROOT)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_rules_and_configuration_are_valid() -> None:
    promtool("check", "rules", "deploy/prometheus/rules.yml")
    promtool("check", "config", "deploy/prometheus/prometheus.yml")


def test_alerts_fire_as_their_unit_tests_say() -> None:
    promtool("test", "rules", "tests/deploy/rules_test.yml")


def test_every_alert_has_a_unit_test() -> None:
    tests = yaml.safe_load((ROOT / "tests/deploy/rules_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if "exp_alerts" in case}
    assert fired == {rule["alert"] for rule in RULES}


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """Run Prometheus with the rules, and yield its URL; it scrapes `target` every second."""
    address = f"127.0.0.1:{free_port()}"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES_FILE)],
        "scrape_configs": [{"job_name": "placement-svc", "static_configs": [{"targets": [target]}]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def query(url: str, path: str, **parameters: str) -> Any:
    """Return the data of a response of Prometheus's own API; the request must succeed."""
    with urlopen(f"{url}/api/v1/{path}?{urlencode(parameters)}", timeout=TIMEOUT) as response:
        body = json.load(response)
    assert body["status"] == "success", body
    return body["data"]


def use(client: Client) -> None:
    """Send requests of which every panel of the dashboard shows something."""
    for amount, status in ((1, 204), (TOTAL, 409)):
        claim = {
            "allocations": {uuid_of(HOST): {"resources": {"VCPU": amount}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_type": "INSTANCE",
            "consumer_generation": None,
        }
        assert client("PUT", f"/allocations/{uuid4()}", claim).status == status
        assert client("GET", f"/allocation_candidates?resources=VCPU:{amount}").status == 200


def test_queries_of_the_dashboard_return_data(
    load_cloud: LoadCloud, database_url: str, tmp_path: Path
) -> None:
    load_cloud(read(f"{HOST}{{VCPU{TOTAL}}}@zone"))
    requests, aggregates = tmp_path / "requests.yaml", tmp_path / "aggregates.yaml"
    requests.write_text("small: resources=VCPU:1&max=1")
    aggregates.write_text(f"zone: {uuid_of('zone')}")
    watched = {"watched_requests": requests, "watched_aggregates": aggregates}
    with (
        serving(workers=2, database_url=database_url, **watched) as service,
        prometheus(tmp_path, f"127.0.0.1:{service.port}") as url,
    ):
        wait_until(lambda: is_ready(url))
        client = service.client()

        def has_data(expression: str) -> bool:
            use(client)
            return bool(query(url, "query", query=expression)["result"])

        for expression in dashboard_queries().values():
            if metrics_of(expression) & RARE:
                query(url, "query", query=expression)
            else:
                wait_until(partial(has_data, expression))
        [group] = query(url, "rules")["groups"]
        assert {rule["name"]: rule["health"] for rule in group["rules"]} == {
            rule["alert"]: "ok" for rule in RULES
        }


def is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/-/ready", timeout=TIMEOUT) as response:
            return bool(response.status == 200)
    except OSError:
        return False
