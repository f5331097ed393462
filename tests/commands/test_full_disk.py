"""Commands whose standard output cannot be written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from tests.support.records import lines, provider, vcpus

FULL = "The output cannot be written: No space left on device"


def placement_svc(
    *arguments: str | Path, closed: bool = False, **settings: str | Path
) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard output is on a full disk, or closed."""
    env = {"PATH": os.environ["PATH"]} | {f"PLACEMENT_{k.upper()}": str(v) for k, v in settings.items()}
    command = ["sh", "-c", f'exec "$@" >{"&-" if closed else "/dev/full"}', "sh", sys.executable, "-m"]
    return subprocess.run(
        [*command, "placement_svc", *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("arguments", "done"),
    [
        (("audit",), ""),
        (("audit", "--json"), ""),
        (("audit", "--fix"), ". The repair is complete."),
        (("settings",), ""),
        (("db", "current"), ""),
        (("db", "role-settings"), ""),
        (("db", "upgrade"), ". The schema is upgraded."),
    ],
)
def test_output_that_cannot_be_written_is_an_error(
    app: object, database_url: str, arguments: tuple[str, ...], done: str
) -> None:
    failed = placement_svc(*arguments, database_url=database_url)
    assert failed.stderr.decode() == f"Error: {FULL}{done}\n"
    assert failed.returncode == 3


def test_an_import_is_complete_without_its_report(
    app: object, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(lines(provider("host", inventories=vcpus(8))))
    checked = placement_svc("import", "--dry-run", file, database_url=database_url)
    assert (checked.returncode, checked.stderr.decode()) == (3, f"Error: {FULL}. Nothing is changed.\n")
    imported = placement_svc("import", file, database_url=database_url)
    assert (imported.returncode, imported.stderr.decode()) == (3, f"Error: {FULL}. The data is imported.\n")
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM resource_providers")) == 1
        vacuumed = text("SELECT relallvisible > 0 FROM pg_class WHERE relname = 'inventories'")
        assert connection.scalar(vacuumed)


def test_a_dump_that_cannot_be_written_is_an_error(app: object, database_url: str) -> None:
    failed = placement_svc("db", "dump", "-", database_url=database_url)
    message = "Error: standard output cannot be written: No space left on device\n"
    assert (failed.returncode, failed.stderr.decode()) == (1, message)


@pytest.mark.parametrize("closed", [False, True])
def test_a_token_that_cannot_be_printed_is_removed(tmp_path: Path, closed: bool) -> None:
    tokens = tmp_path / "tokens.json"
    arguments = ("token", "create", "--user", "u", "--project", "p", "--role", "admin")
    failed = placement_svc(*arguments, closed=closed, token_file=tokens)
    reason = "Bad file descriptor" if closed else "No space left on device"
    message = f"Error: The token cannot be printed: {reason}. It is removed again.\n"
    assert (failed.returncode, failed.stderr.decode()) == (3, message)
    assert json.loads(tokens.read_text()) == {}
    for listed in (("token", "list"), ("token", "list", "--json")):
        assert placement_svc(*listed, token_file=tokens).stderr.decode() == f"Error: {FULL}\n"


@pytest.mark.parametrize("arguments", [("export", "-"), ("db", "dump", "-")])
def test_standard_output_that_is_closed_is_an_error(
    app: object, database_url: str, arguments: tuple[str, ...]
) -> None:
    failed = placement_svc(*arguments, closed=True, database_url=database_url)
    message = "Error: standard output cannot be written: Bad file descriptor\n"
    assert (failed.returncode, failed.stderr.decode()) == (1, message)


def test_a_list_of_tokens_that_nobody_reads_is_no_error(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text("{}")
    listed = placement_svc("token", "list", closed=True, token_file=tokens)
    assert (listed.returncode, listed.stderr) == (0, b"")


def test_a_demo_that_cannot_print_is_an_error() -> None:
    failed = placement_svc("demo", "--once", "--hosts", "0", "--port", "0")
    assert (failed.returncode, failed.stderr.decode()) == (3, f"Error: {FULL}\n")
