"""The command line: help, database and token commands, errors, and how `serve` starts and stops."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import create_engine, make_url, text

from placement_svc import __version__, config
from placement_svc.cli import EXPECTED_ERRORS, main
from placement_svc.config import Settings
from placement_svc.db import revisions
from tests.support.service import THIS_VERSION, Service, program, serving, started, wait_until


@pytest.fixture(autouse=True)
def _own_temporary_directory(monkeypatch: pytest.MonkeyPatch, passable_dir: Path) -> None:
    """Keep `serve` from reporting that it removed what the commands killed by other tests have left."""
    monkeypatch.setattr(tempfile, "tempdir", str(passable_dir))


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in fields(Settings):
        monkeypatch.delenv(config.variable(setting.name), raising=False)


@pytest.fixture(scope="module")
def data_dir(passable_dir: Path) -> Path:
    """The data directory that the tests of this module share."""
    return passable_dir / "data"


def run(*arguments: str, **settings: object) -> Result:
    """Run a command with settings in this process."""
    env = {config.variable(name): str(value) for name, value in settings.items()}
    return CliRunner().invoke(main, arguments, env=env)


def error_message(result: Result) -> str:
    """Return the error message of a failed command, which must be one line on standard error."""
    assert result.exit_code == 1
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    [line] = result.stderr.splitlines()
    return line


def stopped(data_dir: Path) -> bool:
    log = (data_dir / "postgres.log").read_text()
    return not (data_dir / "postgres" / "postmaster.pid").exists() and log.endswith("is shut down\n")


def test_named_database_is_upgraded_and_downgraded(new_database: Callable[[], str]) -> None:
    url = new_database()
    newest = revisions.newest()
    for command, revision in (
        (["current"], f"base of {newest}"),
        (["upgrade"], newest),
        (["upgrade"], newest),
        (["current"], f"{newest} of {newest}"),
        (["downgrade", "--yes", "base"], "base"),
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


def test_embedded_database_is_upgraded_and_downgraded(data_dir: Path) -> None:
    newest = revisions.newest()
    for command, revision in (
        (["upgrade"], newest),
        (["current"], f"{newest} of {newest}"),
        (["downgrade", "--yes", "base"], "base"),
        (["current"], f"base of {newest}"),
    ):
        result = run("db", *command, data_dir=data_dir)
        assert result.exit_code == 0
        assert result.stdout == f"the embedded database in {data_dir} is at revision {revision}\n"
        assert stopped(data_dir)


@pytest.mark.parametrize("command", [["current"], ["upgrade"], ["downgrade", "--yes", "base"]])
def test_unreachable_database_is_reported_in_one_line(server_url: str, command: list[str]) -> None:
    missing = make_url(server_url).set(database="placement_test_missing")
    url = missing.render_as_string(hide_password=False)
    line = error_message(run("db", *command, database_url=url))
    assert "has no database placement_test_missing: create it (createdb placement_test_missing)" in line


@pytest.mark.parametrize("command", [["export", "-"], ["import", "-"], ["audit"], ["audit", "--fix"]])
def test_database_without_a_schema_is_reported_in_one_line(
    new_database: Callable[[], str], command: list[str]
) -> None:
    line = error_message(run(*command, database_url=new_database()))
    assert line == "Error: The database has no schema yet: run `placement-svc db upgrade`."


@pytest.mark.parametrize(
    "command",
    [
        ["db", "current"],
        ["db", "downgrade", "--yes", "base"],
        ["db", "dump", "-"],
        ["export", "-"],
        ["audit"],
        ["audit", "--fix"],
    ],
)
@pytest.mark.parametrize("name", ["missing", "empty", "file", "other"])
def test_commands_that_need_data_create_no_database(tmp_path: Path, command: list[str], name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("")
    before = sorted(tmp_path.rglob("*"))
    line = error_message(run(*command, data_dir=tmp_path / name))
    assert line.startswith(f"Error: {tmp_path / name} has no database: correct PLACEMENT_DATA_DIR, or ")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", [["import"], ["import", "--dry-run"], ["db", "restore"]])
def test_missing_file_creates_no_database(tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "missing.jsonl"
    line = error_message(run(*command, str(file), data_dir=tmp_path / "data"))
    assert line == f"Error: {file} cannot be read: No such file or directory"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["import", "dry-run"])
def test_unreachable_service_creates_no_database(tmp_path: Path, options: list[str]) -> None:
    arguments = ["--from", "http://127.0.0.1:1", "--token", "admin", *options]
    line = error_message(run("import", *arguments, data_dir=tmp_path / "data"))
    assert line.startswith("Error: GET http://127.0.0.1:1/ failed: ")
    assert list(tmp_path.iterdir()) == []


def test_refused_token_creates_no_database(live: str, tmp_path: Path) -> None:
    line = error_message(run("import", "--from", live, "--token", "nobody", data_dir=tmp_path / "data"))
    assert line.startswith(f"Error: GET {live}/resource_providers?uuid=")
    assert " returned 403: " in line
    assert list(tmp_path.iterdir()) == []


def test_embedded_database_is_upgraded_before_an_export(passable_dir: Path) -> None:
    data_dir = passable_dir / "older"
    assert run("db", "upgrade", "0007", data_dir=data_dir).exit_code == 0
    result = run("export", "-", data_dir=data_dir)
    counts = (
        b'{"counts":{"trait":0,"resource_class":0,"resource_provider":0,"consumer":0,"placement_group":0}}\n'
    )
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, counts, "Exported 0 records\n")


@pytest.mark.parametrize("revision", ["9999", "nonsense", "", "0006", "0015", "-4", "+1", "0007:0008"])
def test_unreachable_revision_of_a_downgrade_is_reported(
    new_database: Callable[[], str], revision: str
) -> None:
    url = new_database()
    assert run("db", "upgrade", "0009", database_url=url).exit_code == 0
    line = error_message(run("db", "downgrade", "--yes", "--", revision, database_url=url))
    assert line == (
        f"Error: The schema is at revision 0009 and cannot be downgraded to {revision!r}:"
        " name base, or a revision from 0007 to 0009."
    )
    assert run("db", "downgrade", "--yes", "--", "-2", database_url=url).exit_code == 0


@pytest.mark.parametrize("revision", ["9999", "nonsense", "", "0006", "base", "-1", "+99"])
def test_unreachable_revision_of_an_upgrade_is_reported(
    new_database: Callable[[], str], revision: str
) -> None:
    url = new_database()
    assert run("db", "upgrade", "+2", database_url=url).exit_code == 0
    line = error_message(run("db", "upgrade", "--", revision, database_url=url))
    assert line == (
        f"Error: The schema is at revision 0008 and cannot be upgraded to {revision!r}:"
        f" name head, or a revision from 0009 to {revisions.newest()}."
    )


def test_unreachable_revision_before_the_newest_is_reported(new_database: Callable[[], str]) -> None:
    url = new_database()
    assert run("db", "upgrade", database_url=url).exit_code == 0
    assert run("db", "downgrade", "--yes", "--", "-1", database_url=url).exit_code == 0
    line = error_message(run("db", "upgrade", "9999", database_url=url))
    assert line.endswith(f" cannot be upgraded to '9999': name head or {revisions.newest()}.")


@pytest.mark.parametrize("command", ["upgrade", "downgrade"])
def test_revision_of_a_newer_version_is_reported(new_database: Callable[[], str], command: str) -> None:
    url = new_database()
    assert run("db", "upgrade", database_url=url).exit_code == 0
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    options = ["--yes"] if command == "downgrade" else []
    line = error_message(run("db", command, "0012", *options, database_url=url))
    assert line == (
        "Error: The schema is at revision 9999, which is newer than this version of placement-svc:"
        f" {command} it with the version that has created it."
    )


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
def test_invalid_setting_is_reported_in_one_line(command: list[str], setting: str, value: str) -> None:
    assert config.variable(setting) in error_message(run(*command, **{setting: value}))


@pytest.mark.parametrize(
    ("settings", "content"),
    [
        ({"policy_file": "broken"}, "placement:traits:list: ["),
        ({"policy_file": "broken"}, "'placement:traits:list': nonsense"),
        ({"policy_file": "missing"}, ""),
        ({"watched_requests": "broken"}, "m1.large: resources=VCPU"),
        ({"watched_requests": "missing"}, ""),
        ({"watched_aggregates": "broken"}, "zone-a: rack-7"),
        ({"watched_aggregates": "missing"}, ""),
        ({"auth": "token", "token_file": "broken"}, "{"),
        ({"auth": "token", "token_file": "missing"}, ""),
        ({"auth": "keystone", "keystone_file": "broken"}, "auth_type = password"),
        ({"auth": "keystone", "keystone_file": "missing"}, ""),
        ({"auth": "keystone"}, ""),
    ],
)
def test_files_of_settings_are_checked_before_the_start(
    tmp_path: Path, settings: dict[str, str], content: str
) -> None:
    (tmp_path / "broken").write_text(content)
    named = {name: value if name == "auth" else tmp_path / value for name, value in settings.items()}
    line = error_message(run("serve", data_dir=tmp_path / "data", **named))
    assert line.startswith("Error: The ") or "keystone_authtoken" in line
    assert not (tmp_path / "data").exists()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def create_token(file: Path) -> str:
    """Create a token with two roles; return the output."""
    roles = ["--role", "service", "--role", "reader"]
    result = run("token", "create", "--user", "u", "--project", "p", *roles, token_file=file)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_token_is_printed_only_when_it_is_created(tokens: Path) -> None:
    token_id, secret = create_token(tokens).removesuffix("\n").split(".")
    listed = run("token", "list", token_file=tokens).stdout
    assert token_id in listed
    assert secret not in listed + tokens.read_text()


def test_revoked_token_is_not_listed(tokens: Path) -> None:
    ids = [create_token(tokens).split(".")[0] for _ in range(2)]
    assert run("token", "revoke", ids[0], token_file=tokens).exit_code == 0
    listed = run("token", "list", token_file=tokens).stdout
    assert [token_id for token_id in ids if token_id in listed] == ids[1:]
    assert error_message(run("token", "revoke", ids[0], token_file=tokens)).endswith(f"has no token {ids[0]}")


@pytest.mark.parametrize(
    "command", [["list"], ["revoke", "1"], ["create", "--user", "u", "--project", "p", "--role", "r"]]
)
def test_token_commands_require_a_file(command: list[str]) -> None:
    assert "PLACEMENT_TOKEN_FILE" in error_message(run("token", *command))


@pytest.mark.parametrize("missing_option", ["--user", "--project", "--role"])
def test_token_requires_user_project_and_role(tokens: Path, missing_option: str) -> None:
    given = {"--user": "u", "--project": "p", "--role": "r"}
    words = [word for option in given.items() if option[0] != missing_option for word in option]
    result = run("token", "create", *words, token_file=tokens)
    assert result.exit_code == 2
    assert missing_option in result.stderr
    assert not tokens.exists()


def test_server_needs_two_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement_svc.server.serve.serve", lambda *_, **_options: None)
    settings = {"database_url": "postgresql://nowhere/none"}
    assert "PLACEMENT_POOL_SIZE must be at least 2" in error_message(run("serve", pool_size="1", **settings))
    assert run("serve", pool_size="2", **settings).exit_code == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_noauth_listens_on_loopback_only(host: str) -> None:
    line = error_message(run("serve", "--host", host, database_url="postgresql://nowhere/none"))
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
def test_allowed_host_is_served(monkeypatch: pytest.MonkeyPatch, host: str, settings: dict[str, str]) -> None:
    served: list[Any] = []
    monkeypatch.setattr("placement_svc.server.serve.serve", lambda *_, **options: served.append(options))
    result = run("serve", "--host", host, database_url="postgresql://nowhere/none", **settings)
    assert result.exit_code == 0
    assert served == [{"host": host, "port": 8778, "workers": 2, "threads": 4}]


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", ("other", "127.0.0.1")),
        ("::1", ("other",)),
        ("placement.lan", ("other", "placement.lan")),
        ("0.0.0.0", ("other", "0.0.0.0")),
    ],
)
def test_noauth_accepts_requests_for_the_name_it_listens_on(
    monkeypatch: pytest.MonkeyPatch, host: str, allowed: tuple[str, ...]
) -> None:
    served: list[Settings] = []
    monkeypatch.setattr(
        "placement_svc.server.serve.serve", lambda _, settings, *__, **___: served.append(settings)
    )
    settings = {"allow_insecure": "1", "allowed_hosts": "other", "database_url": "postgresql://nowhere/none"}
    assert run("serve", "--host", host, **settings).exit_code == 0
    assert [settings.allowed_hosts for settings in served] == [allowed]


def test_service_with_authentication_may_listen_on_all_addresses(
    monkeypatch: pytest.MonkeyPatch, tokens: Path
) -> None:
    create_token(tokens)
    served: list[Any] = []
    monkeypatch.setattr(
        "placement_svc.server.serve.serve", lambda *_, **options: served.append(options["host"])
    )
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
def test_invalid_arguments_are_usage_errors(arguments: list[str]) -> None:
    result = run("serve", *arguments, database_url="postgresql://nowhere/none")
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")


@pytest.mark.parametrize("option", ["--lock-timeout", "--statement-timeout"])
def test_timeout_of_an_upgrade_has_the_limit_of_the_settings(
    new_database: Callable[[], str], option: str
) -> None:
    command, url = ["db", "upgrade", option], new_database()
    refused = run(*command, str(config.MAX_SECONDS + 1), database_url=url)
    assert refused.exit_code == 2
    assert f"Invalid value for '{option}': {config.MAX_SECONDS + 1} is not in the range" in refused.stderr
    upgraded = run(*command, str(config.MAX_SECONDS), database_url=url)
    assert upgraded.exit_code == 0, upgraded.stderr


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and of every group of commands."""
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("command", list(commands(main)), ids=" ".join)
def test_help_fits_a_screen(command: tuple[str, ...]) -> None:
    long, short = run(*command, "--help"), run(*command, "-h")
    assert long.exit_code == short.exit_code == 0
    assert long.stdout == short.stdout
    lines = long.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("group", [(), ("db",), ("token",)], ids=" ".join)
def test_list_of_commands_shows_whole_sentences(group: tuple[str, ...]) -> None:
    _, commands = run(*group, "--help").stdout.split("Commands:\n")
    assert "..." not in commands


@pytest.mark.parametrize("command", ["empty", "find", "fits", "top", "tree", "who", "why"])
def test_query_imports_no_service(command: str) -> None:
    code = "import sys; from placement_svc.cli import main; main(standalone_mode=False); print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code, command, "--help"], check=True, capture_output=True, text=True
    )
    imported = set(result.stdout.splitlines()[-1].split())
    assert "placement_svc.commands.query" in imported
    assert imported.isdisjoint({"placement_svc.app", "sqlalchemy", "alembic", "gunicorn"})


@pytest.mark.parametrize(("module", "name"), EXPECTED_ERRORS)
def test_expected_errors_exist(module: str, name: str) -> None:
    assert issubclass(getattr(import_module(module), name), Exception)


@pytest.mark.parametrize("arguments", [[], ["serve"]])
def test_help_names_the_list_of_settings(arguments: list[str]) -> None:
    assert "`placement-svc settings` lists" in " ".join(run(*arguments, "--help").stdout.split())


def test_settings_lists_every_setting_with_its_default_and_meaning() -> None:
    result = run("settings")
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 80
    listed = [" ".join(paragraph.split()) for paragraph in result.stdout.split("\n\n")[1:]]
    assert listed == [
        f"{config.variable(setting.name)} {setting.metadata['about']} Default: {config.default_text(setting)}"
        for setting in fields(Settings)
    ]


def test_version_is_that_of_the_project() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert __version__ == pyproject["project"]["version"]
    assert run("--version").stdout == f"placement-svc {__version__}\n"


def test_package_can_be_run_as_a_module() -> None:
    command = [sys.executable, "-m", "placement_svc", "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == f"placement-svc {__version__}\n"


@pytest.mark.parametrize(
    ("number", "to_all"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True)],
    ids=["SIGTERM", "SIGINT", "Ctrl-C"],
)
def test_serve_runs_until_a_signal(data_dir: Path, number: signal.Signals, to_all: bool) -> None:
    with serving(data_dir=data_dir, log_level="info") as service:
        client = service.client()
        assert "resource_providers" in client.result("GET", "/resource_providers")
        [report] = [record for record in service.log_records() if record["event"] == "start"]
        assert report["database"] == f"the embedded database in {data_dir}"
        (os.killpg if to_all else os.kill)(service.process.pid, number)
        service.ended()
    assert stopped(data_dir)


def test_serve_runs_without_standard_error(data_dir: Path) -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *THIS_VERSION]
    with started(data_dir=data_dir, command=command) as service:
        service.wait_until_it_responds()
        assert "resource_providers" in service.client().result("GET", "/resource_providers")
        assert service.stop() == ""
    assert stopped(data_dir)


def test_serve_stopped_during_its_start_leaves_nothing_running(data_dir: Path) -> None:
    with started(data_dir=data_dir) as service:
        wait_until((data_dir / "postgres" / "postmaster.pid").exists)
        assert service.stop() == ""
    assert stopped(data_dir)


def test_two_services_share_one_data_dir(data_dir: Path) -> None:
    with started(data_dir=data_dir) as one, started(data_dir=data_dir) as other:
        for service in (one, other):
            service.wait_until_it_responds()
        created = one.client().result("POST", "/resource_providers", {"name": "host"})
        assert other.client().result("GET", f"/resource_providers/{created['uuid']}") == created
        assert "Traceback" not in one.stop()
        assert other.client().result("GET", f"/resource_providers/{created['uuid']}") == created
        assert "Traceback" not in other.stop()
    assert stopped(data_dir)


def test_serve_does_not_upgrade_a_named_database(new_database: Callable[[], str]) -> None:
    url = new_database()
    with serving(database_url=url) as service:
        output = service.stop()
    assert "run `placement-svc db upgrade`. Until then, the API and /readyz respond with 503." in output
    assert " is at revision base of " in run("db", "current", database_url=url).stdout


def test_free_port_is_in_the_startup_report(database_url: str) -> None:
    with program("serve", "--port", "0", log_level="info", database_url=database_url) as service:
        wait_until(lambda: "Booting worker" in service.log.read_text())
        [port] = re.findall(r'"url": "http://127.0.0.1:(\d+)"', service.log.read_text())
        Service(service.process, service.log, service.temporary, int(port)).wait_until_it_responds()
        service.stop()


def test_port_in_use_is_reported_before_the_start(data_dir: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        line = error_message(run("serve", "--port", str(port), data_dir=data_dir / "unused"))
    assert line.startswith(f"Error: The service cannot listen on 127.0.0.1:{port} (Address already in use)")
    assert not (data_dir / "unused").exists()


def test_host_that_cannot_be_resolved_is_reported(data_dir: Path) -> None:
    arguments = ("serve", "--host", "no-such-host.invalid")
    line = error_message(run(*arguments, allow_insecure=1, data_dir=data_dir / "unused"))
    assert line.startswith("Error: The service cannot listen on no-such-host.invalid:8778 (")
    assert "Unknown error" not in line


def test_unknown_setting_is_reported_with_the_closest_one() -> None:
    result = CliRunner().invoke(main, ["serve"], env={"PLACEMENT_DATABSE_URL": "postgresql://host/placement"})
    assert error_message(result) == (
        "Error: PLACEMENT_DATABSE_URL is not a setting: did you mean PLACEMENT_DATABASE_URL?"
    )
