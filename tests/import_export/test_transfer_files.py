"""Incomplete, compressed and hostile files; dry runs; what an export does to files that exist."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import Result
from sqlalchemy import Engine

from placement_svc.import_export import transfer
from placement_svc.import_export.transfer import MAX_LINE_BYTES
from tests.support.records import consumer, lines, provider, reported_problems, vcpus
from tests.support.snapshot import snapshot

Run = Callable[..., Result]

HOST = provider("host", inventories=vcpus(8))
FILE = lines({"trait": "CUSTOM_A"}, HOST, provider("other"), consumer("x", {"host": {"VCPU": 9}}))


def placement_svc(*arguments: str, url: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "placement_svc", *arguments]
    env = {"PATH": os.environ["PATH"], "PLACEMENT_DATABASE_URL": url}
    return subprocess.run(command, env=env, capture_output=True, timeout=120, **options)


def test_an_export_ends_with_its_counts(cloud: None, run: Run) -> None:
    *exported, last = map(orjson.loads, run("export", "-").stdout_bytes.splitlines())
    numbers = {name: sum(name in record for record in exported) for name in last["counts"]}
    assert last == {"counts": numbers}
    assert sum(numbers.values()) == len(exported)
    assert (numbers["resource_provider"], numbers["consumer"]) == (5, 2)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_is_cut_at_a_line_end_is_refused(
    app: Any, run: Run, engine: Engine, tmp_path: Path, compressed: bool
) -> None:
    before = snapshot(engine)
    file = tmp_path / "cloud.jsonl"
    for kept in range(4):
        cut = b"".join(FILE.splitlines(keepends=True)[:kept])
        file.write_bytes(gzip.compress(cut) if compressed else cut)
        [problem] = reported_problems(run("import", "--allow-overcommitted", str(file)))
        assert problem.startswith(
            f"{file} does not end with a record of counts: it is incomplete, or an older"
        )
        assert "--partial" in problem
        assert snapshot(engine) == before


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_is_cut_within_a_line_is_called_truncated(
    app: Any, run: Run, engine: Engine, compressed: bool
) -> None:
    before = snapshot(engine)
    for kept in (1, len(FILE) // 2, len(FILE) - 1):
        cut = FILE[:kept]
        [problem] = reported_problems(run("import", "-", input=gzip.compress(cut) if compressed else cut))
        assert problem.startswith(f"line {len(cut.splitlines())}: This is not JSON: ")
        assert "; the file is truncated, because the line has no line end (in {" in problem
        assert snapshot(engine) == before
    [problem] = reported_problems(run("import", "-", input=cut + b"\n"))
    assert "truncated" not in problem


def test_a_file_of_an_older_version_is_imported_with_an_option(app: Any, run: Run, engine: Engine) -> None:
    old = FILE[: FILE.rindex(b"\n")]
    assert "--partial" in run("import", "--allow-overcommitted", "-", input=old).stderr
    imported = run("import", "--allow-overcommitted", "--partial", "-", input=old)
    assert imported.stdout == "Imported 2 resource providers, 1 consumer and 1 custom trait\n"


def test_counts_from_before_placement_groups_are_valid(app: Any, run: Run) -> None:
    file = lines(provider("host")).replace(b',"placement_group":0', b"")
    assert b"placement_group" not in file
    assert run("import", "-", input=file).exit_code == 0


def test_a_file_with_other_counts_is_refused(app: Any, run: Run, engine: Engine) -> None:
    before = snapshot(engine)
    records = FILE.splitlines(keepends=True)
    missing_two = b"".join([records[1], *records[3:]])
    first, second = reported_problems(run("import", "-", input=missing_two))
    assert first.startswith(
        "line 3: the record of counts has 1 for trait, but the file has 0: the file is inc"
    )
    assert second.startswith("line 3: the record of counts has 2 for resource_provider, but the file has 1:")
    assert snapshot(engine) == before
    partly = run("import", "--partial", "--allow-overcommitted", "-", input=missing_two)
    assert partly.stdout == "Imported 1 resource provider and 1 consumer\n"


def test_records_after_the_counts_are_refused(app: Any, run: Run, engine: Engine) -> None:
    before = snapshot(engine)
    joined = lines(provider("a")) + b"\n\n" + lines(provider("b"))
    [problem] = reported_problems(run("import", "-", input=joined))
    assert problem.startswith("line 4: the record of counts must be the last line: import several files one")
    assert snapshot(engine) == before
    assert run("import", "--partial", "-", input=joined).exit_code == 0


@pytest.mark.parametrize(
    "counts",
    [b"{}", b"3", b'{"trait": 1}', b'{"trait":-1,"resource_class":0,"resource_provider":0,"consumer":0}'],
)
def test_invalid_counts_are_refused(app: Any, run: Run, counts: bytes) -> None:
    [problem] = reported_problems(run("import", "-", input=b'{"counts": %s}' % counts))
    assert problem.startswith("line 1: ")


TERMINAL = "\x1b[2J\x07\x9b\u202e\r\nError: forged"


@pytest.mark.parametrize(
    "content",
    [
        TERMINAL.encode(),
        b'{"trait": "\x1b[2J\x07"',
        orjson.dumps({"trait": TERMINAL}),
        orjson.dumps({TERMINAL: 1}),
        orjson.dumps(provider("a", **{TERMINAL: 1})),
        orjson.dumps(provider("a", traits=[TERMINAL])),
        orjson.dumps(provider("a", inventories={TERMINAL: {"total": 1}})),
        lines(provider("a", name=TERMINAL), provider("b", name=TERMINAL)),
    ],
)
def test_control_characters_of_a_file_are_escaped(app: Any, run: Run, content: bytes) -> None:
    refused = run("import", "--partial", "-", input=content)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    shown = refused.stderr.splitlines()
    assert all(line.isprintable() for line in refused.stderr.rstrip("\n").split("\n"))
    assert not any(line.startswith("Error: forged") for line in shown)


def test_compressed_standard_input_is_recognized(app: Any, engine: Engine, database_url: str) -> None:
    data = gzip.compress(lines(provider("host")))
    imported = placement_svc("import", "-", url=database_url, input=data)
    assert imported.stdout == b"Imported 1 resource provider and 0 consumers\n"
    assert [row[1] for row in snapshot(engine)["providers"]] == ["host"]


def test_a_cut_compressed_standard_input_is_refused(app: Any, run: Run) -> None:
    cut = gzip.compress(FILE)[:-9]
    [problem] = reported_problems(run("import", "-", input=cut))
    assert problem.startswith("standard input cannot be read: Compressed file ended")


@pytest.mark.parametrize("character", [b" ", b"0"])
def test_a_line_that_is_too_long_is_refused(
    app: Any, run: Run, tmp_path: Path, character: bytes, engine: Engine
) -> None:
    before = snapshot(engine)
    file = tmp_path / "cloud.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as compressed:
        compressed.write(lines(HOST) + b"\n" + character * (MAX_LINE_BYTES + 1))
    [problem] = reported_problems(run("import", str(file)))
    assert problem == (
        f"{file} cannot be imported: line 3 has more than 67,108,864 bytes, which no line of an export has."
        " Nothing is imported"
    )
    assert snapshot(engine) == before


def test_the_longest_line_is_read(app: Any, run: Run) -> None:
    [counts] = lines().splitlines()
    longest = counts + b" " * (MAX_LINE_BYTES - len(counts) - 1) + b"\n"
    assert run("import", "-", input=longest).exit_code == 0


def test_an_export_refuses_a_record_that_no_import_reads(
    cloud: None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MAX_LINE_BYTES", 200)
    [problem] = reported_problems(run("export", str(tmp_path / "cloud.jsonl")))
    assert problem.startswith('The data cannot be exported: the record {"resource_provider":{"uuid":')
    assert problem.endswith(" bytes, and an import reads at most 200 per line. Use `placement-svc db dump`")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_checks_everything_and_changes_nothing(app: Any, run: Run, engine: Engine) -> None:
    before = snapshot(engine)
    [problem] = reported_problems(run("import", "--dry-run", "-", input=FILE))
    assert problem.startswith("line 4: 9 VCPU of resource provider")
    checked = run("import", "--dry-run", "--allow-overcommitted", "-", input=FILE)
    assert checked.exit_code == 0
    added = "2 resource providers, 1 consumer and 1 custom trait"
    assert checked.stdout == f"Nothing is changed. An import would add {added}\n"
    assert "Overcommitted: 9 VCPU" in checked.stderr
    assert snapshot(engine) == before


def test_a_dry_run_reads_another_service(live: str, cloud: None, run: Run, engine: Engine) -> None:
    before = snapshot(engine)
    checked = run("import", "--dry-run", "--from", live, "--token", "admin")
    assert "already exists" in checked.stderr
    assert snapshot(engine) == before


def test_an_export_does_not_replace_a_file(cloud: None, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "cloud.jsonl"
    file.write_text("old content")
    [problem] = reported_problems(run("export", str(file)))
    assert problem == f"{file} exists: name another file, or use --force to replace it"
    assert file.read_text() == "old content"
    assert run("export", "--force", str(file)).exit_code == 0
    assert file.read_bytes().endswith(b"}}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["cloud.jsonl"]


@pytest.mark.parametrize("name", ["cloud.jsonl", "cloud.jsonl.gz"])
def test_only_the_owner_can_read_an_export(app: Any, database_url: str, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    old_mask = os.umask(0)
    try:
        exported = placement_svc("export", str(file), url=database_url)
    finally:
        os.umask(old_mask)
    assert exported.returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_export_does_not_replace_a_device(app: Any, run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    [problem] = reported_problems(run("export", "--force", str(pipe)))
    assert problem == f"{pipe} is not a regular file: write to - for standard output"
    assert pipe.is_fifo()


def test_an_export_to_a_full_disk_is_an_error(cloud: None, database_url: str) -> None:
    command = [sys.executable, "-m", "placement_svc", "export", "-"]
    env = {"PATH": os.environ["PATH"], "PLACEMENT_DATABASE_URL": database_url}
    with open("/dev/full", "wb") as full:
        failed = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert failed.returncode == 1
    assert failed.stderr == b"Error: standard output cannot be written: No space left on device\n"
