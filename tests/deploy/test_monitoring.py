"""The dashboard and the alerts name metrics that exist, and sections of docs/operations.md."""

import re

import pytest
from flask import Flask

from tests.support.monitoring import (
    DASHBOARD,
    OPTIONAL,
    PANELS,
    ROOT,
    RULES,
    dashboard_queries,
    metrics_of,
)

OPERATIONS = (ROOT / "docs/operations.md").read_text()
QUERIES = dashboard_queries() | {rule["alert"]: rule["expr"] for rule in RULES}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_metrics_are_exported_and_documented(app: Flask, query: str) -> None:
    served = set(re.findall(r"^# HELP (\w+)", app.test_client().get("/metrics").text, re.M))
    documented = set(re.findall(r"^\| `(placement_\w+)` \|", OPERATIONS, re.M))
    named = metrics_of(query)
    assert named or query.startswith("up{")
    assert named <= (served & documented) | OPTIONAL


def test_every_metric_is_in_the_dashboard_or_in_an_alert() -> None:
    documented = set(re.findall(r"^\| `(placement_\w+)` \|", OPERATIONS, re.M))
    assert documented | OPTIONAL == {name for query in QUERIES.values() for name in metrics_of(query)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_alert_has_a_runbook(rule: dict[str, dict[str, str]]) -> None:
    page, anchor = rule["annotations"]["runbook"].split("#")
    assert page == "docs/operations.md"
    assert anchor == str(rule["alert"]).lower()
    [text] = re.findall(rf"^### {rule['alert']}\n(.*?)(?=^##)", OPERATIONS, re.M | re.S)
    for part in ("Meaning", "Examine", "Action"):
        assert f"* {part}: " in text


def test_sections_are_those_of_the_alerts() -> None:
    text = OPERATIONS.split("\n## Alerts\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (\w+)$", text, re.M) == [rule["alert"] for rule in RULES]


def test_alerts_that_the_dashboard_names_exist() -> None:
    named = {name for panel in PANELS for name in re.findall(r"\bPlacement[A-Z]\w+", panel["description"])}
    assert named
    assert named <= {rule["alert"] for rule in RULES}


def test_panels_do_not_overlap() -> None:
    covered = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & covered, panel["title"]
        covered |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_panels_have_a_unit_a_description_and_the_selected_data_source() -> None:
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
