"""The command: its database commands, what it refuses, and how it serves and stops."""

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import make_url

from placement_svc import config
from placement_svc.cli import main
from placement_svc.config import Settings
from placement_svc.db import schema
from tests.support.service import serving, started, wait_until


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in fields(Settings):
        monkeypatch.delenv(config.variable(setting.name), raising=False)


@pytest.fixture(scope="module")
def data_dir(passable_dir: Path) -> Path:
    """The data directory of all tests here."""
    return passable_dir / "data"


def run(*arguments: str, **settings: object) -> Result:
    """Run the command with settings, in this process."""
    env = {config.variable(name): str(value) for name, value in settings.items()}
    return CliRunner().invoke(main, arguments, env=env)


def refused(result: Result) -> str:
    """Return why the command failed: one line on standard error."""
    assert result.exit_code == 1
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    [line] = result.stderr.splitlines()
    return line


def stopped(data_dir: Path) -> bool:
    log = (data_dir / "postgres.log").read_text()
    return not (data_dir / "postgres" / "postmaster.pid").exists() and log.endswith("is shut down\n")


def test_named_database_goes_up_and_down(new_database: Callable[[], str]) -> None:
    url = new_database()
    newest = schema.newest()
    for command, revision in (
        (["current"], f"base of {newest}"),
        (["upgrade"], newest),
        (["upgrade"], newest),
        (["current"], f"{newest} of {newest}"),
        (["downgrade", "base"], "base"),
        (["current"], f"base of {newest}"),
        (["upgrade", "0007"], "0007"),
    ):
        result = run("db", *command, database_url=url)
        assert (result.exit_code, result.stderr) == (0, "")
        shown = make_url(url).set(password=None).render_as_string()
        assert result.stdout == f"{shown} is at revision {revision}\n"


def test_password_is_not_shown(new_database: Callable[[], str]) -> None:
    url = make_url(new_database()).set(password="secret").render_as_string(hide_password=False)
    result = run("db", "current", database_url=url)
    assert result.exit_code == 0
    assert "secret" not in result.output


def test_embedded_database_goes_up_and_down(data_dir: Path) -> None:
    newest = schema.newest()
    for command, revision in (
        (["upgrade"], newest),
        (["current"], f"{newest} of {newest}"),
        (["downgrade", "base"], "base"),
        (["current"], f"base of {newest}"),
    ):
        result = run("db", *command, data_dir=data_dir)
        assert result.exit_code == 0
        assert result.stdout.endswith(f" is at revision {revision}\n")
        assert stopped(data_dir)


@pytest.mark.parametrize("command", [["current"], ["upgrade"], ["downgrade", "base"]])
def test_no_database_at_the_url_is_told_in_a_line(server_url: str, command: list[str]) -> None:
    missing = make_url(server_url).set(database="placement_test_missing")
    url = missing.render_as_string(hide_password=False)
    assert refused(run("db", *command, database_url=url)).startswith("Error: The database cannot be reached")


@pytest.mark.parametrize("command", [["export", "-"], ["import", "-"], ["audit"], ["audit", "--fix"]])
def test_database_without_a_schema_is_told_in_a_line(
    new_database: Callable[[], str], command: list[str]
) -> None:
    line = refused(run(*command, database_url=new_database()))
    assert line == "Error: The database has no schema yet: run `placement-svc db upgrade`."


def test_embedded_database_gets_its_schema_before_data_moves(data_dir: Path) -> None:
    result = run("export", "-", data_dir=data_dir)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Exported 0 records\n")


@pytest.mark.parametrize("command", [["upgrade", "9999"], ["downgrade", "9999"], ["downgrade", "-5"]])
def test_revision_that_cannot_be_is_told_in_a_line(
    new_database: Callable[[], str], command: list[str]
) -> None:
    name, revision = command
    line = refused(run("db", name, "--", revision, database_url=new_database()))
    assert line.startswith("Error: ")
    assert revision in line


@pytest.mark.parametrize(
    "command", [["serve"], ["db", "upgrade"], ["db", "current"], ["export", "-"], ["import", "-"], ["audit"]]
)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("database_url", "sqlite://"),
        ("database_url", "postgresql+asyncpg://host/placement"),
        ("pool_size", "many"),
        ("auth", "nobody"),
        ("auth", "token"),
        ("data_dir", __file__),
    ],
)
def test_bad_setting_is_told_in_a_line(command: list[str], setting: str, value: str) -> None:
    assert config.variable(setting) in refused(run(*command, **{setting: value}))


@pytest.mark.parametrize(
    ("settings", "content"),
    [
        ({"policy_file": "broken"}, "placement:traits:list: ["),
        ({"policy_file": "broken"}, "'placement:traits:list': nonsense"),
        ({"policy_file": "missing"}, ""),
        ({"auth": "token", "token_file": "broken"}, "{"),
        ({"auth": "token", "token_file": "missing"}, ""),
        ({"auth": "keystone", "keystone_file": "broken"}, "auth_type = password"),
        ({"auth": "keystone", "keystone_file": "missing"}, ""),
        ({"auth": "keystone"}, ""),
    ],
)
def test_what_decides_who_may_call_is_checked_before_anything_is_served(
    tmp_path: Path, settings: dict[str, str], content: str
) -> None:
    (tmp_path / "broken").write_text(content)
    named = {name: tmp_path / value if name.endswith("_file") else value for name, value in settings.items()}
    line = refused(run("serve", data_dir=tmp_path / "data", **named))
    assert line.startswith("Error: The ") or "keystone_authtoken" in line
    assert not (tmp_path / "data").exists()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def create_token(file: Path) -> str:
    """Create a token of two roles; return what is shown."""
    roles = ["--role", "service", "--role", "reader"]
    result = run("token", "create", "--user", "u", "--project", "p", *roles, token_file=file)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_a_token_is_shown_when_it_is_created_and_never_again(tokens: Path) -> None:
    token_id, secret = create_token(tokens).removesuffix("\n").split(".")
    listed = run("token", "list", token_file=tokens).stdout
    assert listed.startswith(f"{token_id}  u  p  service,reader  20")
    assert len(listed.splitlines()) == 1
    assert secret not in listed + tokens.read_text()


def test_a_revoked_token_is_not_listed(tokens: Path) -> None:
    ids = [create_token(tokens).split(".")[0] for _ in range(2)]
    assert run("token", "revoke", ids[0], token_file=tokens).exit_code == 0
    assert [line.split()[0] for line in run("token", "list", token_file=tokens).stdout.splitlines()] == ids[
        1:
    ]
    assert refused(run("token", "revoke", ids[0], token_file=tokens)).endswith(f"has no token {ids[0]}")


@pytest.mark.parametrize(
    "command", [["list"], ["revoke", "1"], ["create", "--user", "u", "--project", "p", "--role", "r"]]
)
def test_commands_of_tokens_need_a_file(command: list[str]) -> None:
    assert "PLACEMENT_TOKEN_FILE" in refused(run("token", *command))


@pytest.mark.parametrize("lacking", ["--user", "--project", "--role"])
def test_a_token_is_for_somebody_in_a_project_with_a_role(tokens: Path, lacking: str) -> None:
    given = {"--user": "u", "--project": "p", "--role": "r"}
    words = [word for option in given.items() if option[0] != lacking for word in option]
    result = run("token", "create", *words, token_file=tokens)
    assert result.exit_code == 2
    assert lacking in result.stderr
    assert not tokens.exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_noauth_listens_on_loopback_only(host: str) -> None:
    line = refused(run("serve", "--host", host, database_url="postgresql://nowhere/none"))
    assert f"not on {host}" in line
    assert "PLACEMENT_ALLOW_INSECURE=1" in line


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("127.0.0.1", {}),
        ("127.1.2.3", {}),
        ("::1", {}),
        ("localhost", {}),
        ("0.0.0.0", {"allow_insecure": "1"}),
    ],
)
def test_host_that_may_be_is_served(
    monkeypatch: pytest.MonkeyPatch, host: str, settings: dict[str, str]
) -> None:
    served: list[Any] = []
    monkeypatch.setattr("placement_svc.server.serve.serve", lambda *arguments: served.append(arguments[2:]))
    result = run("serve", "--host", host, database_url="postgresql://nowhere/none", **settings)
    assert result.exit_code == 0
    assert served == [(host, 8778, 2, 4)]


def test_a_service_that_knows_its_callers_may_be_reached_by_all(
    monkeypatch: pytest.MonkeyPatch, tokens: Path
) -> None:
    create_token(tokens)
    served: list[Any] = []
    monkeypatch.setattr("placement_svc.server.serve.serve", lambda *arguments: served.append(arguments[2]))
    settings = {"database_url": "postgresql://nowhere/none", "auth": "token", "token_file": tokens}
    assert run("serve", "--host", "0.0.0.0", **settings).exit_code == 0
    assert served == ["0.0.0.0"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "99999"],
        ["--port", "-1"],
        ["--port", "http"],
        ["--workers", "0"],
        ["--threads", "0"],
        ["--nonsense"],
    ],
)
def test_arguments_that_cannot_be_are_a_matter_of_usage(arguments: list[str]) -> None:
    result = run("serve", *arguments, database_url="postgresql://nowhere/none")
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"]])
def test_help_lists_every_setting(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    for setting in fields(Settings):
        assert config.variable(setting.name) in result.stdout


@pytest.mark.parametrize(
    ("number", "to_all"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True)],
    ids=["SIGTERM", "SIGINT", "Ctrl-C"],
)
def test_serve_answers_until_it_is_told_to_stop(data_dir: Path, number: signal.Signals, to_all: bool) -> None:
    with serving(data_dir=data_dir) as service:
        client = service.client()
        assert "resource_providers" in client.result("GET", "/resource_providers")
        (os.killpg if to_all else os.kill)(service.process.pid, number)
        service.ended()
    assert stopped(data_dir)


def test_serve_that_is_told_to_stop_while_it_starts_leaves_nothing(data_dir: Path) -> None:
    with started(data_dir=data_dir) as service:
        wait_until((data_dir / "postgres" / "postmaster.pid").exists)
        assert service.stop() == ""
    assert stopped(data_dir)


def test_two_that_serve_share_one_data_dir(data_dir: Path) -> None:
    with started(data_dir=data_dir) as one, started(data_dir=data_dir) as other:
        for service in (one, other):
            service.wait_until_it_answers()
        created = one.client().result("POST", "/resource_providers", {"name": "host"})
        assert other.client().result("GET", f"/resource_providers/{created['uuid']}") == created
        assert "Traceback" not in one.stop()
        assert other.client().result("GET", f"/resource_providers/{created['uuid']}") == created
        assert "Traceback" not in other.stop()
    assert stopped(data_dir)


def test_serve_does_not_touch_the_schema_of_a_named_database(new_database: Callable[[], str]) -> None:
    url = new_database()
    with serving(database_url=url) as service:
        told = service.stop()
    assert "run `placement-svc db upgrade`. Until then requests and /readyz are answered with 503." in told
    assert " is at revision base of " in run("db", "current", database_url=url).stdout


def test_port_that_is_taken_is_told_before_anything_is_started(data_dir: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        line = refused(run("serve", "--port", str(port), data_dir=data_dir / "unused"))
    assert line.startswith(f"Error: The service cannot listen on 127.0.0.1:{port} (Address already in use)")
    assert not (data_dir / "unused").exists()


def test_setting_that_is_none_is_told_with_the_one_that_was_meant() -> None:
    result = CliRunner().invoke(main, ["serve"], env={"PLACEMENT_DATABSE_URL": "postgresql://host/placement"})
    assert refused(result) == (
        "Error: PLACEMENT_DATABSE_URL is no setting: did you mean PLACEMENT_DATABASE_URL?"
    )
