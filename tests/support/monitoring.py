"""The dashboard and the alerts of `deploy`: their queries, and the metrics that these name."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RULES_FILE = ROOT / "deploy/prometheus/rules.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/placement.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

OPTIONAL = {
    "placement_request_fits",
    "placement_aggregate_capacity",
    "placement_aggregate_used",
    "placement_aggregate_reserved",
}
"""Metrics that the service exports only if it is configured to watch requests or aggregates."""


def dashboard_queries() -> dict[str, str]:
    """Return the queries of the dashboard as Grafana sends them to Prometheus, each with a name."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        .replace("$__rate_interval", "1m")
        .replace("$job", ".*")
        for panel in PANELS
        for target in panel["targets"]
    }


def metrics_of(query: str) -> set[str]:
    """Return the metrics in a query, by the names of their families in `/metrics`."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bplacement_[a-z_]+\b", query)}
