"""Every policy rule by role and scope, in both profiles, and the effect of a policy file."""

import gc
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from oslo_policy import policy
from oslo_policy.policy import DocumentedRuleDefault, parse_file_contents
from werkzeug import Request, Response
from werkzeug.serving import make_server
from werkzeug.test import TestResponse

from placement_svc.config import Settings
from placement_svc.domain.errors import SetupError
from placement_svc.http.policy import load, named_roles
from placement_svc.http.rules import list_rules
from tests.conftest import application
from tests.support.servers import run_in_thread
from tests.support.versions import EXTENDED_HEADER

NOWHERE = "0ae00000-0000-4000-8000-0000000000ff"
PROVIDER = f"/resource_providers/{NOWHERE}"

ADMIN_OR_SERVICE = {"admin", "service"}

# An allowed request changes nothing: its resource does not exist, or its body is not JSON.
ENDPOINTS = [
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
    ("allocations:update", "POST", "/claims"),
    ("allocations:delete", "DELETE", f"/allocations/{NOWHERE}"),
    ("allocation_candidates:list", "GET", "/allocation_candidates"),
    ("allocations:list_many", "GET", f"/allocations?consumer_uuid={NOWHERE}"),
    ("capacity", "GET", "/capacity"),
    ("consumers:list", "GET", "/consumers?project_id=own"),
    ("consumers:list", "GET", "/consumers?project_id=other"),
    ("consumers:show", "GET", f"/consumers/{NOWHERE}"),
    ("projects:list", "GET", "/projects?project_id=own"),
    ("projects:list", "GET", "/projects"),
    ("allocation_candidates:explain", "GET", "/allocation_candidates/explanation"),
    ("allocation_candidates:capacity", "GET", "/allocation_candidates/capacity"),
    ("allocation_candidates:empty", "GET", "/allocation_candidates/empty"),
    ("placement_groups:list", "GET", "/placement_groups"),
    ("placement_groups:show", "GET", f"/placement_groups/{NOWHERE}"),
    ("placement_groups:update", "PUT", f"/placement_groups/{NOWHERE}"),
    ("placement_groups:delete", "DELETE", f"/placement_groups/{NOWHERE}"),
    ("usages", "GET", "/usages?project_id=own"),
    ("usages", "GET", "/usages?project_id=other"),
    ("reshaper:reshape", "POST", "/reshaper"),
]

ALLOWED_ROLES = {
    ("secure", "/usages?project_id=own"): ADMIN_OR_SERVICE | {"reader"},
    ("legacy", "/usages?project_id=own"): ADMIN_OR_SERVICE | {"reader"},
    **{
        (profile, path): ADMIN_OR_SERVICE | {"reader"}
        for profile in ("secure", "legacy")
        for path in ("/consumers?project_id=own", f"/consumers/{NOWHERE}", "/projects?project_id=own")
    },
    ("secure", "/reshaper"): {"service"},
}
"""The roles that may send a request, where they differ from `ADMIN_OR_SERVICE`."""

ROLES = ["admin", "service", "reader", "member", "manager", ""]

Apps = Callable[..., Flask]
in_both_profiles = pytest.mark.parametrize("profile", ["secure", "legacy"])
for_every_endpoint = pytest.mark.parametrize(
    ("rule", "method", "path"), ENDPOINTS, ids=[f"{method} {path}" for _, method, path in ENDPOINTS]
)


@pytest.fixture(scope="module")
def apps(database_url: str) -> Iterator[Apps]:
    """A function that returns an application with the given settings."""
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
        **EXTENDED_HEADER,
        "Content-Type": "application/json",
    }
    return app.test_client().open(path, method=method, data="nonsense", headers=sent | headers)


def denial(response: TestResponse) -> str:
    """Return the reason of a 403."""
    assert response.status_code == 403, response.text
    [error] = response.json["errors"]
    reason: str = error["detail"].split("\n\n")[1].strip()
    return reason


@in_both_profiles
@for_every_endpoint
def test_role_allows_or_denies_the_request(
    apps: Apps, profile: str, rule: str, method: str, path: str
) -> None:
    responses = {role: ask(apps(policy_profile=profile), method, path, role) for role in ROLES}
    allowed = ALLOWED_ROLES.get((profile, path), ADMIN_OR_SERVICE)
    assert {role for role, response in responses.items() if response.status_code != 403} == allowed
    for role in set(ROLES) - allowed:
        assert denial(responses[role]) == f"Policy does not allow placement:{rule} to be performed."


@in_both_profiles
@for_every_endpoint
def test_only_project_scope_is_accepted(apps: Apps, profile: str, rule: str, method: str, path: str) -> None:
    for scope in ({"OpenStack-System-Scope": "all"}, {"X-Domain-Id": "default"}):
        response = ask(apps(policy_profile=profile), method, path, "admin,service,reader", **scope)
        assert denial(response) == f"placement:{rule}"


def test_table_has_every_endpoint_rule() -> None:
    operations = [rule for rule in list_rules() if isinstance(rule, DocumentedRuleDefault)]
    assert {rule.name for rule in operations} == {f"placement:{rule}" for rule, _, _ in ENDPOINTS}
    assert all(rule.scope_types == ["project"] for rule in operations)


# The policy file


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


def is_allowed(app: Flask, roles: str, path: str = "/traits") -> bool:
    return ask(app, "GET", path, roles).status_code != 403


def test_policy_file_overrides_one_rule(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text('"placement:traits:list": "role:reader"\n')
    app = apps(policy_file=policy_file)
    assert is_allowed(app, "reader")
    assert not is_allowed(app, "admin")
    assert is_allowed(app, "admin", "/resource_classes")
    assert not is_allowed(app, "reader", "/resource_classes")


def test_base_rule_in_policy_file_applies_to_every_reference(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text("admin_or_service_api: role:operator\n")
    app = apps(policy_file=policy_file)
    for path in ("/traits", "/resource_classes"):
        assert is_allowed(app, "operator", path)
        assert not is_allowed(app, "admin", path)


def test_base_rule_in_policy_file_replaces_the_check_that_legacy_adds(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text("service_api: role:operator\n")
    app = apps(policy_file=policy_file, policy_profile="legacy")
    for role, status in (("operator", 400), ("admin", 403), ("service", 403)):
        assert ask(app, "POST", "/reshaper", role).status_code == status


def test_policy_file_does_not_change_the_scope(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text('"placement:traits:list": "@"\n')
    response = ask(
        apps(policy_file=policy_file), "GET", "/traits", "admin", **{"OpenStack-System-Scope": "all"}
    )
    assert denial(response) == "placement:traits:list"


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
def test_checks_use_the_attributes_of_the_caller(
    apps: Apps, policy_file: Path, check: str, passes: bool
) -> None:
    policy_file.write_text(f'"placement:traits:list": "{check}"\nmine: role:member\n')
    assert is_allowed(apps(policy_file=policy_file), "member") == passes


def test_target_of_usages_is_the_project_of_the_query(apps: Apps, policy_file: Path) -> None:
    policy_file.write_text("'placement:usages': project_id:%(project_id)s\n")
    app = apps(policy_file=policy_file)
    assert is_allowed(app, "", "/usages?project_id=own")
    assert is_allowed(app, "", "/usages?project_id=other;project_id=own")
    assert not is_allowed(app, "", "/usages?project_id=other")
    assert not is_allowed(app, "", "/usages?project_id=own;project_id=other")
    assert not is_allowed(app, "", "/usages")


def test_changed_policy_file_applies_to_the_next_request(
    apps: Apps, policy_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy_file.write_text('"placement:traits:list": "role:one"\n')
    app = apps(policy_file=policy_file)
    assert (is_allowed(app, "one"), is_allowed(app, "two")) == (True, False)
    policy_file.write_text('"placement:traits:list": "role:one or role:two"\n')
    assert (is_allowed(app, "one"), is_allowed(app, "two")) == (True, True)
    with caplog.at_level(logging.ERROR):
        policy_file.write_text('"placement:traits:list": "role:one or or"\n')
        assert (is_allowed(app, "one"), is_allowed(app, "two")) == (True, True)
        policy_file.unlink()
        assert (is_allowed(app, "one"), is_allowed(app, "two")) == (True, True)
    # Other tests of this process may have enabled the level INFO, at which each reload is logged.
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert all(str(policy_file) in record.getMessage() for record in errors)
    policy_file.write_text("{}")
    assert (is_allowed(app, "one"), is_allowed(app, "admin")) == (False, True)


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
    (
        '"placement:traits:list": rule:nonsense',
        "has rules that refer to themselves or to undefined rules: placement:traits:list",
    ),
    ('"placement:traits:list": "user_id:%(x"', "an invalid check for placement:traits:list: 'user_id:%(x'"),
    ('"placement:traits:list": "%(user_id)s:%s"', "has an invalid check for placement:traits:list"),
    ('"placement:traits:list": "role:a or user_id:%(user_id)d"', "has an invalid check"),
    ('"placement:traits:list": "http://127.0.0.1:1/%(x"', "has an invalid check for placement:traits:list"),
    (f'"placement:traits:list": {"not " * 3000}role:a', "has an invalid check for placement:traits:list"),
    ("[" * 5000, "is not YAML"),
    ('"placement:traits:list": !!int ""', "is not YAML"),
    ("a: rule:b\nb: rule:a", "refer to themselves or to undefined rules: a, b"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_invalid_policy_file_is_reported_in_one_line(policy_file: Path, content: str, message: str) -> None:
    policy_file.write_text(content, encoding="latin-1")
    with pytest.raises(SetupError) as raised:
        load("secure", policy_file)
    assert str(raised.value).startswith(f"The policy file {policy_file} ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_finalizer_runs_at_the_recursion_limit_of_the_parsers(
    policy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collects = []

    def parse(text: str) -> Any:
        collects.append(gc.isenabled())
        return parse_file_contents(text)

    monkeypatch.setattr(policy, "parse_file_contents", parse)
    policy_file.write_text("{}")
    load("secure", policy_file)
    assert (set(collects), gc.isenabled()) == ({False}, True)


def test_unreadable_policy_file_is_reported_in_one_line(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "missing", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(SetupError, match=f"cannot be read: {why}$"):
            load("secure", path)


def test_policy_file_that_is_a_named_pipe_is_reported(policy_file: Path) -> None:
    os.mkfifo(policy_file)
    with pytest.raises(SetupError, match=r"cannot be read: Not a regular file$"):
        load("secure", policy_file)


def test_roles_of_the_rules_are_found(policy_file: Path) -> None:
    assert named_roles(load("secure", None)) == {"admin", "service", "reader"}
    policy_file.write_text("a: not role:One\nb: (role:two or (role:three and project_id:x)) or xrole:four\n")
    assert named_roles(load("secure", policy_file)) == {"admin", "service", "reader", "one", "two", "three"}


def test_unused_rule_in_policy_file_is_reported(policy_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy_file.write_text('"placement:trait:list": "role:admin"\nmine: "role:admin"\n')
    load("secure", policy_file)
    [record] = caplog.records
    assert record.getMessage().endswith("a rule that no endpoint uses: placement:trait:list")


@pytest.fixture
def verdict_server() -> Iterator[tuple[str, list[bytes]]]:
    """A server for ``http:`` checks: its URL, and the verdicts that it returns one after the other."""
    verdicts: list[bytes] = []

    @Request.application
    def response(request: Request) -> Response:
        return Response(verdicts.pop(0))

    server = make_server("127.0.0.1", 0, response)
    with run_in_thread(server):
        yield f"http://127.0.0.1:{server.port}/", verdicts


def test_http_check_that_cannot_be_evaluated_is_unavailable(
    apps: Apps, policy_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    policy_file.write_text(f'"placement:traits:list": "http://127.0.0.1:{port}/x"\n')
    response = ask(apps(policy_file=policy_file), "GET", "/traits", "admin")
    assert response.status_code == 503
    assert "The policy rule placement:traits:list cannot be evaluated at the moment." in response.text
    assert "The policy rule placement:traits:list cannot be evaluated: " in caplog.text


def test_http_check_is_not_cached(
    apps: Apps, policy_file: Path, verdict_server: tuple[str, list[bytes]]
) -> None:
    url, verdicts = verdict_server
    verdicts += [b"True", b"False", b"True"]
    policy_file.write_text(f'"placement:traits:list": "{url}"\n')
    app = apps(policy_file=policy_file)
    assert [is_allowed(app, "admin") for _ in range(3)] == [True, False, True]


# The tools of oslo.policy


def output_of(tool: str) -> str:
    """Return the output of a command of oslo.policy for this service."""
    command = [Path(sys.executable).with_name(tool), "--namespace", "placement-svc"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_sample_generator_writes_every_rule() -> None:
    sample = output_of("oslopolicy-sample-generator")
    for rule in list_rules():
        assert f'#"{rule.name}": "{rule.check_str}"' in sample
    assert "# POST  /reshaper\n# Intended scope(s): project\n" in sample


def test_policy_generator_writes_the_effective_policy(
    policy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy_file.write_text('"placement:traits:list": "role:reader"\n')
    monkeypatch.setenv("PLACEMENT_POLICY_FILE", str(policy_file))
    effective = output_of("oslopolicy-policy-generator")
    assert '"placement:traits:list": "role:reader"\n' in effective
    assert '"placement:traits:show": "rule:admin_or_service_api"\n' in effective
