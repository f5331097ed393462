"""The documented policy example and the policy file for monitoring, tested for every endpoint."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from tests.conftest import NewApp
from tests.support.versions import EXTENDED_HEADER

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/policy/monitoring.yaml"
POLICY_SECTION = (ROOT / "docs/operations.md").read_text().split("### Policy\n")[1].split("\n## ")[0]

OWN_USAGES = "/usages?project_id=own"
OTHER_USAGES = "/usages?project_id=other"
CONSUMER = "/consumers/0ae00000-0000-4000-8000-0000000000ff"
"""A consumer that does not exist: a 404 for readers, as the consumer of another project is."""


def requests(app: Flask) -> Iterator[tuple[str, str]]:
    """Yield method and path of each endpoint that a policy rule protects.

    Allowed requests change nothing: the objects do not exist, and the body is not JSON.
    """
    for rule in app.url_map.iter_rules():
        path = re.sub(r"<[^>]*>", "0ae00000-0000-4000-8000-0000000000ff", rule.rule)
        for method in sorted(rule.methods or ()):
            if path == "/usages":
                yield from ((method, usages) for usages in (OWN_USAGES, OTHER_USAGES))
            elif path not in ("/", ""):
                yield method, path


def is_allowed(app: Flask, roles: str, method: str, path: str) -> bool:
    headers = {
        "X-Auth-Token": "user:own",
        "X-Roles": roles,
        **EXTENDED_HEADER,
        "Content-Type": "application/json",
    }
    response = app.test_client().open(path, method=method, headers=headers, data="nonsense")
    assert response.status_code in (200, 204, 400, 403, 404), response.text
    return response.status_code != 403


def allowed(app: Flask, roles: str) -> set[tuple[str, str]]:
    """Return the requests that a caller with these roles may send."""
    return {request for request in requests(app) if is_allowed(app, roles, *request)}


@pytest.fixture
def with_example(new_app: NewApp, tmp_path: Path) -> Flask:
    """The application with the policy file that the documentation shows."""
    [example] = re.findall(r"```yaml\n(.*?)```", POLICY_SECTION, re.S)
    file = tmp_path / "policy.yaml"
    file.write_text(example)
    return new_app(policy_file=file)


def test_operator_of_the_example_may_do_what_administrators_may(app: Flask, with_example: Flask) -> None:
    administrators = allowed(app, "admin")
    assert ("GET", OTHER_USAGES) in administrators
    assert allowed(with_example, "operator") == administrators
    assert allowed(app, "operator") == set()


def test_example_changes_nothing_else_but_the_list_of_traits(app: Flask, with_example: Flask) -> None:
    for role in ("admin", "service", "member"):
        assert allowed(with_example, role) == allowed(app, role)
    assert allowed(app, "reader") == {("GET", OWN_USAGES), ("GET", CONSUMER)}
    assert allowed(with_example, "reader") == {("GET", OWN_USAGES), ("GET", CONSUMER), ("GET", "/traits")}


def test_monitoring_may_read_everything_and_change_nothing(app: Flask, new_app: NewApp) -> None:
    of_monitoring = allowed(new_app(policy_file=MONITORING), "monitoring")
    assert of_monitoring == {(method, path) for method, path in requests(app) if method == "GET"}
    assert ("GET", OTHER_USAGES) in of_monitoring
    assert len(of_monitoring) > 15


def test_monitoring_needs_the_policy_file(app: Flask) -> None:
    assert allowed(app, "monitoring") == set()


@pytest.mark.parametrize("role", ["admin", "service", "reader", "member"])
@pytest.mark.parametrize("profile", ["secure", "legacy"])
def test_monitoring_file_leaves_other_roles_unchanged(new_app: NewApp, profile: str, role: str) -> None:
    with_file = new_app(policy_profile=profile, policy_file=MONITORING)
    assert allowed(with_file, role) == allowed(new_app(policy_profile=profile), role)


def test_documentation_names_the_monitoring_file() -> None:
    assert f"PLACEMENT_POLICY_FILE={MONITORING.relative_to(ROOT)}" in POLICY_SECTION
