"""Who may do what: every rule by role and scope, in both profiles, and what a policy file changes."""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from oslo_policy.policy import DocumentedRuleDefault
from werkzeug import Request, Response
from werkzeug.serving import make_server
from werkzeug.test import TestResponse

from placement_svc.config import Settings
from placement_svc.domain.errors import SetupError
from placement_svc.http.policy import load
from placement_svc.http.rules import list_rules
from tests.conftest import application

NOWHERE = "0ae00000-0000-4000-8000-0000000000ff"
PROVIDER = f"/resource_providers/{NOWHERE}"

ADMIN_OR_SERVICE = {"admin", "service"}

# Whoever may do one of these changes nothing by it: what they name is not there, or their body is no JSON.
OPERATIONS = [
    ("resource_providers:list", "GET", "/resource_providers"),
    ("resource_providers:create", "POST", "/resource_providers"),
    ("resource_providers:show", "GET", PROVIDER),
    ("resource_providers:update", "PUT", PROVIDER),
    ("resource_providers:delete", "DELETE", PROVIDER),
    ("resource_classes:list", "GET", "/resource_classes"),
    ("resource_classes:create", "POST", "/resource_classes"),
    ("resource_classes:show", "GET", "/resource_classes/VCPU"),
    ("resource_classes:update", "PUT", "/resource_classes/VCPU"),
    ("resource_classes:delete", "DELETE", "/resource_classes/VCPU"),
    ("resource_providers:inventories:list", "GET", f"{PROVIDER}/inventories"),
    ("resource_providers:inventories:create", "POST", f"{PROVIDER}/inventories"),
    ("resource_providers:inventories:show", "GET", f"{PROVIDER}/inventories/VCPU"),
    ("resource_providers:inventories:update", "PUT", f"{PROVIDER}/inventories"),
    ("resource_providers:inventories:update", "PUT", f"{PROVIDER}/inventories/VCPU"),
    ("resource_providers:inventories:delete", "DELETE", f"{PROVIDER}/inventories"),
    ("resource_providers:inventories:delete", "DELETE", f"{PROVIDER}/inventories/VCPU"),
    ("resource_providers:aggregates:list", "GET", f"{PROVIDER}/aggregates"),
    ("resource_providers:aggregates:update", "PUT", f"{PROVIDER}/aggregates"),
    ("resource_providers:traits:list", "GET", f"{PROVIDER}/traits"),
    ("resource_providers:traits:update", "PUT", f"{PROVIDER}/traits"),
    ("resource_providers:traits:delete", "DELETE", f"{PROVIDER}/traits"),
    ("traits:list", "GET", "/traits"),
    ("traits:show", "GET", "/traits/HW_CPU_X86_AVX"),
    ("traits:update", "PUT", "/traits/HW_CPU_X86_AVX"),
    ("traits:delete", "DELETE", "/traits/HW_CPU_X86_AVX"),
    ("aggregates:list", "GET", "/aggregates"),
    ("aggregates:show", "GET", f"/aggregates/{NOWHERE}"),
    ("resource_providers:allocations:list", "GET", f"{PROVIDER}/allocations"),
    ("resource_providers:usages", "GET", f"{PROVIDER}/usages"),
    ("allocations:manage", "POST", "/allocations"),
    ("allocations:list", "GET", f"/allocations/{NOWHERE}"),
    ("allocations:update", "PUT", f"/allocations/{NOWHERE}"),
    ("allocations:delete", "DELETE", f"/allocations/{NOWHERE}"),
    ("allocation_candidates:list", "GET", "/allocation_candidates"),
    ("usages", "GET", "/usages?project_id=own"),
    ("usages", "GET", "/usages?project_id=other"),
    ("reshaper:reshape", "POST", "/reshaper"),
]

SUFFICE = {
    ("secure", "/usages?project_id=own"): ADMIN_OR_SERVICE | {"reader"},
    ("legacy", "/usages?project_id=own"): ADMIN_OR_SERVICE | {"reader"},
    ("secure", "/reshaper"): {"service"},
}
"""The roles that suffice for a path, where it is not those of administrators and services."""

ROLES = ["admin", "service", "reader", "member", "manager", ""]

Apps = Callable[..., Flask]
in_both_profiles = pytest.mark.parametrize("profile", ["secure", "legacy"])
of_every_operation = pytest.mark.parametrize(
    ("rule", "method", "path"), OPERATIONS, ids=[f"{method} {path}" for _, method, path in OPERATIONS]
)


@pytest.fixture(scope="module")
def apps(database_url: str) -> Iterator[Apps]:
    """A function that returns the application with the settings it is given."""
    with ExitStack() as stack:

        @cache
        def app(**settings: Any) -> Flask:
            return stack.enter_context(application(Settings(database_url=database_url, **settings)))

        yield app


def ask(app: Flask, method: str, path: str, roles: str, **headers: str) -> TestResponse:
    """Send a request as a user of the project `own`."""
    sent = {
        "X-Auth-Token": "user:own",
        "X-Roles": roles,
        "OpenStack-API-Version": "placement 1.39",
        "Content-Type": "application/json",
    }
    return app.test_client().open(path, method=method, data="nonsense", headers=sent | headers)


def refusal(answer: TestResponse) -> str:
    """Return why a request was refused by policy."""
    assert answer.status_code == 403, answer.text
    [error] = answer.json["errors"]
    reason: str = error["detail"].split("\n\n")[1].strip()
    return reason


@in_both_profiles
@of_every_operation
def test_one_role_suffices_or_does_not(apps: Apps, profile: str, rule: str, method: str, path: str) -> None:
    answers = {role: ask(apps(policy_profile=profile), method, path, role) for role in ROLES}
    suffice = SUFFICE.get((profile, path), ADMIN_OR_SERVICE)
    assert {role for role, answer in answers.items() if answer.status_code != 403} == suffice
    for role in set(ROLES) - suffice:
        assert refusal(answers[role]) == f"Policy does not allow placement:{rule} to be performed."


@in_both_profiles
@of_every_operation
def test_only_the_scope_of_a_project_counts(
    apps: Apps, profile: str, rule: str, method: str, path: str
) -> None:
    for scope in ({"OpenStack-System-Scope": "all"}, {"X-Domain-Id": "default"}):
        answer = ask(apps(policy_profile=profile), method, path, "admin,service,reader", **scope)
        assert refusal(answer) == f"placement:{rule}"


def test_the_table_has_every_operation() -> None:
    operations = [rule for rule in list_rules() if isinstance(rule, DocumentedRuleDefault)]
    assert {rule.name for rule in operations} == {f"placement:{rule}" for rule, _, _ in OPERATIONS}
    assert all(rule.scope_types == ["project"] for rule in operations)


# What a policy file changes


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


def may(app: Flask, roles: str, path: str = "/traits") -> bool:
    return ask(app, "GET", path, roles).status_code != 403


def test_a_rule_of_the_file_replaces_one_rule(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text('"placement:traits:list": "role:reader"\n')
    app = apps(policy_file=policy_file)
    assert may(app, "reader")
    assert not may(app, "admin")
    assert may(app, "admin", "/resource_classes")
    assert not may(app, "reader", "/resource_classes")


def test_a_base_rule_of_the_file_counts_wherever_it_is_named(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text("admin_or_service_api: role:operator\n")
    app = apps(policy_file=policy_file)
    for path in ("/traits", "/resource_classes"):
        assert may(app, "operator", path)
        assert not may(app, "admin", path)


def test_a_rule_of_the_file_replaces_what_legacy_adds(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text("service_api: role:operator\n")
    app = apps(policy_file=policy_file, policy_profile="legacy")
    for role, status in (("operator", 400), ("admin", 403), ("service", 403)):
        assert ask(app, "POST", "/reshaper", role).status_code == status


def test_a_file_does_not_widen_the_scope(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text('"placement:traits:list": "@"\n')
    answer = ask(
        apps(policy_file=policy_file), "GET", "/traits", "admin", **{"OpenStack-System-Scope": "all"}
    )
    assert refusal(answer) == "placement:traits:list"


@pytest.mark.parametrize(
    ("check", "passes"),
    [
        ("user_id:user", True),
        ("user_id:other", False),
        ("project_id:own", True),
        ("project_id:other", False),
        ("user_id:%(user_id)s and project_id:%(project_id)s", True),
        ("project_id:%(domain_id)s", False),
        ("'own':%(project_id)s", True),
        ("not role:member", False),
        ("@", True),
        ("!", False),
        ("", True),
        ("rule:mine", True),
    ],
)
def test_checks_know_the_caller(apps: Apps, policy_file: Path, check: str, passes: bool) -> None:
    policy_file.write_text(f'"placement:traits:list": "{check}"\nmine: role:member\n')
    assert may(apps(policy_file=policy_file), "member") == passes


def test_usages_are_of_the_project_asked_about(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text("'placement:usages': project_id:%(project_id)s\n")
    app = apps(policy_file=policy_file)
    assert may(app, "", "/usages?project_id=own")
    assert may(app, "", "/usages?project_id=other;project_id=own")
    assert not may(app, "", "/usages?project_id=other")
    assert not may(app, "", "/usages?project_id=own;project_id=other")
    assert not may(app, "", "/usages")


def test_a_changed_file_counts_with_the_next_request(
    apps: Apps, policy_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy_file.write_text('"placement:traits:list": "role:one"\n')
    app = apps(policy_file=policy_file)
    assert (may(app, "one"), may(app, "two")) == (True, False)
    policy_file.write_text('"placement:traits:list": "role:one or role:two"\n')
    assert (may(app, "one"), may(app, "two")) == (True, True)
    with caplog.at_level(logging.ERROR):
        policy_file.write_text('"placement:traits:list": "role:one or or"\n')
        assert (may(app, "one"), may(app, "two")) == (True, True)
        policy_file.unlink()
        assert (may(app, "one"), may(app, "two")) == (True, True)
    assert len(caplog.records) == 2
    assert all(str(policy_file) in record.getMessage() for record in caplog.records)
    policy_file.write_text("{}")
    assert (may(app, "one"), may(app, "admin")) == (False, True)


BROKEN = [
    ("placement:traits:list: [", "is not YAML"),
    ("\xff", "is not YAML"),
    ("- role:admin", "must map the names of rules to checks"),
    ("role:admin", "must map the names of rules to checks"),
    ('"placement:traits:list": nonsense', "has an invalid check for placement:traits:list: 'nonsense'"),
    ('"placement:traits:list": role:a or nonsense', "has an invalid check for placement:traits:list"),
    ('"placement:traits:list": (role:a', "has an invalid check for placement:traits:list"),
    ('"placement:traits:list":', "has an invalid check for placement:traits:list: None"),
    ('"placement:traits:list": true', "has an invalid check for placement:traits:list: True"),
    ('"placement:traits:list": [[]]', "has an invalid check for placement:traits:list"),
    ("5: role:admin", "has a rule name that is not a string: 5"),
    ('"placement:traits:list": rule:nonsense', "refer to themselves or to undefined rules"),
    ("a: rule:b\nb: rule:a", "refer to themselves or to undefined rules"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_a_file_that_cannot_be_used_is_told_in_a_line(policy_file: Path, content: str, message: str) -> None:
    policy_file.write_text(content, encoding="latin-1")
    with pytest.raises(SetupError) as refused:
        load("secure", policy_file)
    assert str(refused.value).startswith(f"The policy file {policy_file} ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_told_in_a_line(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "missing", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(SetupError, match=f"cannot be read: {why}$"):
            load("secure", path)


def test_a_rule_that_nothing_asks_for_is_told(policy_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy_file.write_text('"placement:trait:list": "role:admin"\nmine: "role:admin"\n')
    load("secure", policy_file)
    [record] = caplog.records
    assert record.getMessage().endswith("a rule that no endpoint uses: placement:trait:list")


@pytest.fixture
def judge() -> Iterator[tuple[str, list[bytes]]]:
    """A server that is asked by ``http:`` checks: its URL, and the verdicts that it gives in turn."""
    verdicts: list[bytes] = []

    @Request.application
    def answer(request: Request) -> Response:
        return Response(verdicts.pop(0))

    server = make_server("127.0.0.1", 0, answer)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield f"http://127.0.0.1:{server.port}/", verdicts
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_check_that_asks_elsewhere_asks_each_time(
    apps: Apps, policy_file: Path, judge: tuple[str, list[bytes]]
) -> None:
    url, verdicts = judge
    verdicts += [b"True", b"False", b"True"]
    policy_file.write_text(f'"placement:traits:list": "{url}"\n')
    app = apps(policy_file=policy_file)
    assert [may(app, "admin") for _ in range(3)] == [True, False, True]


# The tools of oslo.policy


def written_by(tool: str) -> str:
    """Return what a command of oslo.policy writes about this service."""
    command = [Path(sys.executable).with_name(tool), "--namespace", "placement-svc"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_sample_generator_writes_every_rule() -> None:
    sample = written_by("oslopolicy-sample-generator")
    for rule in list_rules():
        assert f'#"{rule.name}": "{rule.check_str}"' in sample
    assert "# POST  /reshaper\n# Intended scope(s): project\n" in sample


def test_policy_generator_writes_what_the_settings_mean(
    policy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy_file.write_text('"placement:traits:list": "role:reader"\n')
    monkeypatch.setenv("PLACEMENT_POLICY_FILE", str(policy_file))
    effective = written_by("oslopolicy-policy-generator")
    assert '"placement:traits:list": "role:reader"\n' in effective
    assert '"placement:traits:show": "rule:admin_or_service_api"\n' in effective
