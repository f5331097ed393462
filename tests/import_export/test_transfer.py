"""Exports and imports of files: an import restores an export, and a refused import changes nothing."""

import gzip
import random
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import pytest
from click.testing import Result
from sqlalchemy import Engine, text

from placement_svc.db import maintenance
from tests.support.cloud import uuid_of
from tests.support.records import (
    consumer,
    lines,
    placement_group,
    provider,
    reported_problems,
    vcpus,
)
from tests.support.sample_cloud import Call
from tests.support.snapshot import snapshot

Run = Callable[..., Result]

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def test_an_import_restores_an_export(
    cloud: None, run: Run, engine: Engine, clean_database: Callable[[], None], tmp_path: Path
) -> None:
    before = snapshot(engine)
    file = str(tmp_path / "cloud.jsonl")
    assert run("export", file).exit_code == 0
    clean_database()
    imported = run("import", "--allow-overcommitted", file)
    names = "2 custom traits and 2 custom resource classes"
    added = f"5 resource providers, 2 consumers, 2 placement groups, {names}"
    assert (imported.exit_code, imported.stdout) == (0, f"Imported {added}\n")
    assert snapshot(engine) == before
    again = str(tmp_path / "again.jsonl")
    assert run("export", again).exit_code == 0
    assert Path(again).read_bytes() == Path(file).read_bytes()


def test_an_export_does_not_show_in_which_order_aggregates_were_created(
    call: Call, run: Run, clean_database: Callable[[], None]
) -> None:
    for host in ("h1", "h2"):
        call("POST", "/resource_providers", {"name": host, "uuid": uuid_of(host)})
    # The second host is in the older aggregate, but an import reads the first host first.
    for generation, host, aggregates in ((0, "h2", "x"), (0, "h1", "y"), (1, "h2", "xy")):
        body = {"aggregates": [*map(uuid_of, aggregates)], "resource_provider_generation": generation}
        call("PUT", f"/resource_providers/{uuid_of(host)}/aggregates", body)
    exported = run("export", "-").stdout_bytes
    clean_database()
    assert run("import", "-", input=exported).exit_code == 0
    assert run("export", "-").stdout_bytes == exported


def test_lines_may_be_in_any_order(
    cloud: None, run: Run, engine: Engine, clean_database: Callable[[], None]
) -> None:
    before = snapshot(engine)
    *records, counts = run("export", "-").stdout_bytes.splitlines(keepends=True)
    for seed in range(3):
        random.Random(seed).shuffle(records)
        clean_database()
        shuffled = b"\n".join([*records, counts])
        assert run("import", "--allow-overcommitted", "-", input=shuffled).exit_code == 0
        assert snapshot(engine) == before


def test_a_compressed_export_has_the_same_content(cloud: None, run: Run, tmp_path: Path) -> None:
    run("export", str(tmp_path / "cloud.jsonl"))
    exported = run("export", str(tmp_path / "cloud.jsonl.gz"))
    assert exported.stderr.endswith("records\n")
    uncompressed = gzip.decompress((tmp_path / "cloud.jsonl.gz").read_bytes())
    assert uncompressed == (tmp_path / "cloud.jsonl").read_bytes()


def test_a_compressed_file_is_imported(run: Run, engine: Engine, app: Any, tmp_path: Path) -> None:
    file = tmp_path / "cloud.jsonl.gz"
    file.write_bytes(gzip.compress(lines(provider("host"))))
    assert run("import", str(file)).exit_code == 0
    assert [row[1] for row in snapshot(engine)["providers"]] == ["host"]


def test_an_export_of_an_empty_database_has_no_records(app: Any, run: Run) -> None:
    assert run("export", "-").stdout_bytes == lines() + b"\n"


def test_a_failed_export_leaves_the_old_file_unchanged(
    cloud: None, run: Run, tmp_path: Path, engine: Engine
) -> None:
    file = tmp_path / "cloud.jsonl"
    file.write_text("old content")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE allocations RENAME TO renamed"))
    try:
        failed = run("export", "--force", str(file))
    finally:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE renamed RENAME TO allocations"))
    assert failed.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cloud.jsonl"]
    assert file.read_text() == "old content"


HOST = provider("host", inventories=vcpus(8, min_unit=2, max_unit=6, step_size=2))


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        (
            [provider("a"), {"trait": "CUSTOM_A"}, provider("b", uuid=uuid_of("a"))],
            [f"lines 1, 3: several resource providers have the uuid {uuid_of('a')}"],
        ),
        (
            [provider("a"), provider("b", name="a"), provider("c", name="a")],
            ["lines 1, 2, 3: several resource providers have the name a"],
        ),
        (
            [provider("present")],
            [
                f"line 1: a resource provider with the uuid {uuid_of('present')} already exists",
                "line 1: a resource provider with the name present already exists",
            ],
        ),
        (
            [provider("a"), provider("b", "nobody")],
            [f"line 2: the parent {uuid_of('nobody')} of resource provider {uuid_of('b')} does not exist"],
        ),
        (
            [provider("a", "b"), provider("root"), provider("b", "a"), provider("c", "b")],
            ["lines 1, 3, 4: the parents of these resource providers form a cycle"],
        ),
        (
            [provider("a", "a")],
            ["line 1: the parents of these resource providers form a cycle"],
        ),
        ([provider("a", traits=["HW_NUMA_ROOT", "HW_NONE"])], ["line 1: no such trait HW_NONE"]),
        (
            [provider("a", inventories={"CUSTOM_NONE": {"total": 1}})],
            ["line 1: no such resource class CUSTOM_NONE"],
        ),
        (
            [HOST, consumer("x", {"host": {"VCPU": 2}}), consumer("x", {"host": {"VCPU": 2}})],
            [f"lines 2, 3: several consumers have the uuid {uuid_of('x')}"],
        ),
        (
            [consumer("owner", {"present": {"VCPU": 1}})],
            [f"line 1: a consumer with the uuid {uuid_of('owner')} already exists"],
        ),
        (
            [consumer("x", {"nobody": {"VCPU": 1}})],
            [f"line 1: resource provider {uuid_of('nobody')} does not exist"],
        ),
        (
            [HOST, consumer("x", {"host": {"MEMORY_MB": 1}, "present": {"CUSTOM_NONE": 1}})],
            [
                f"line 2: resource provider {uuid_of('host')} has no inventory of MEMORY_MB",
                f"line 2: resource provider {uuid_of('present')} has no inventory of CUSTOM_NONE",
            ],
        ),
        (
            [consumer("x", {"host": {"VCPU": 6}}), HOST, consumer("y", {"host": {"VCPU": 4}})],
            [
                f"lines 1, 3: 10 VCPU of resource provider {uuid_of('host')} are allocated,"
                " but the capacity is 8"
            ],
        ),
        (
            [consumer("x", {"present": {"VCPU": 8}})],
            [
                f"line 1: 9 VCPU of resource provider {uuid_of('present')} are allocated,"
                " but the capacity is 8"
            ],
        ),
        *(
            (
                [HOST, consumer("x", {"host": {"VCPU": amount}})],
                [
                    f"line 2: an allocation of {amount} VCPU from resource provider {uuid_of('host')}"
                    " violates inventory constraints: min_unit 2, max_unit 6, step_size 2"
                ],
            )
            for amount in (1, 5, 8)
        ),
        (
            [placement_group("g", []), placement_group("g", [])],
            [f"lines 1, 2: several placement groups have the uuid {uuid_of('g')}"],
        ),
        (
            [placement_group("group", [])],
            [f"line 1: a placement group with the uuid {uuid_of('group')} already exists"],
        ),
        (
            [placement_group("g", ["owner"]), placement_group("h", ["nobody"])],
            [
                f"line 1: consumer {uuid_of('owner')} is already a member of a placement group",
                f"line 2: the member {uuid_of('nobody')} of a placement group does not exist",
            ],
        ),
        (
            [
                placement_group("g", ["x"]),
                HOST,
                consumer("x", {"host": {"VCPU": 2}}),
                placement_group("h", ["x"]),
            ],
            [f"lines 1, 4: consumer {uuid_of('x')} is a member of several placement groups"],
        ),
        (
            [provider("a", "nobody"), HOST, HOST],
            [
                f"line 1: the parent {uuid_of('nobody')} of resource provider {uuid_of('a')} does not exist",
                "lines 2, 3: several resource providers have the name host",
                f"lines 2, 3: several resource providers have the uuid {uuid_of('host')}",
            ],
        ),
    ],
)
def test_contradictions_are_reported_by_line_and_nothing_is_imported(
    call: Call, run: Run, engine: Engine, values: list[Any], problems: list[str]
) -> None:
    run("import", "-", input=lines(provider("present", inventories=vcpus(8))))
    run("import", "-", input=lines(consumer("owner", {"present": {"VCPU": 1}})))
    run("import", "-", input=lines(placement_group("group", ["owner"])))
    before = snapshot(engine)
    assert len(before["allocations"]) == len(before["placement_group_members"]) == 1
    assert reported_problems(run("import", "-", input=lines(*values))) == sorted(problems)
    assert snapshot(engine) == before


def test_each_invalid_line_is_reported(app: Any, run: Run, engine: Engine) -> None:
    invalid = [b"{", b"", orjson.dumps(HOST), b'{"trait": "NONE"}', orjson.dumps(provider("a", color="red"))]
    first, second, third = reported_problems(run("import", "-", input=b"\n".join(invalid)))
    assert first.startswith("line 1: This is not JSON: ")
    assert second.startswith("line 4: The trait is invalid.")
    assert third.startswith("line 5: Additional properties are not allowed ('color' was unexpected)")
    assert snapshot(engine)["providers"] == []


def test_at_most_100_problems_are_reported(app: Any, run: Run) -> None:
    unknown_provider = [consumer(str(number), {"nobody": {"VCPU": 1}}) for number in range(200)]
    for sent in (b"nothing\n" * 1000, lines(*unknown_provider)):
        # A capital letter sorts first.
        more, *problems = reported_problems(run("import", "-", input=sent))
        assert len(problems) == 100
        assert more == "Only the first 100 problems are listed: there may be more."


def test_generations_count_the_requests_that_an_import_replaces(call: Call, run: Run, app: Any) -> None:
    fields = {"inventories": vcpus(8), "traits": ["HW_NUMA_ROOT"], "aggregates": [uuid_of("A")]}
    values = [provider("host", **fields), provider("bare", "host"), provider("other", inventories=vcpus(8))]
    values += [consumer(name, {"host": {"VCPU": 1}, "other": {"VCPU": 1}}) for name in "xy"]
    assert run("import", "-", input=lines(*values)).exit_code == 0
    providers = call("GET", "/resource_providers")["resource_providers"]
    assert [(provider["name"], provider["generation"]) for provider in providers] == [
        ("host", 5),
        ("bare", 0),
        ("other", 3),
    ]
    assert call("GET", f"/allocations/{uuid_of('x')}")["consumer_generation"] == 1


def test_an_import_adds_to_existing_data(call: Call, run: Run, engine: Engine) -> None:
    run("import", "-", input=lines({"trait": "CUSTOM_A"}, provider("host", inventories=vcpus(8))))
    more = [{"trait": "CUSTOM_A"}, provider("child", "host"), consumer("x", {"host": {"VCPU": 8}})]
    imported = run("import", "-", input=lines(*more))
    assert imported.stdout == "Imported 1 resource provider and 1 consumer\n"
    child = call("GET", f"/resource_providers/{uuid_of('child')}")
    assert child["root_provider_uuid"] == uuid_of("host")
    assert call("GET", f"/resource_providers/{uuid_of('host')}")["generation"] == 2
    assert call("GET", f"/resource_providers/{uuid_of('host')}/usages")["usages"] == {"VCPU": 8}


def test_allowed_overcommitted_allocations_are_reported(app: Any, run: Run, engine: Engine) -> None:
    values = [HOST, consumer("x", {"host": {"VCPU": 9}})]
    imported = run("import", "--allow-overcommitted", "-", input=lines(*values))
    assert imported.exit_code == 0
    assert imported.stderr.splitlines() == [
        f"Overcommitted: 9 VCPU of resource provider {uuid_of('host')} are allocated, but the capacity is 8",
        f"Overcommitted: an allocation of 9 VCPU from resource provider {uuid_of('host')} violates"
        " inventory constraints: min_unit 2, max_unit 6, step_size 2",
    ]
    assert [row[3] for row in snapshot(engine)["allocations"]] == [9]


def test_the_example_in_the_documentation_is_imported(app: Any, run: Run) -> None:
    [example] = re.findall(r"^## Moving data\n.*?```json\n(.*?)```", OPERATIONS.read_text(), re.M | re.S)
    imported = run("import", "-", input=example.encode())
    names = "1 placement group, 1 custom trait and 1 custom resource class"
    assert imported.stdout == f"Imported 1 resource provider, 1 consumer, {names}\n"


def test_rows_of_every_table_are_staged_in_batches(
    app: Any, run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placement_svc.db.imports.BATCH_SIZE", 7)
    fields = {
        "inventories": {**vcpus(100), "DISK_GB": {"total": 100}},
        "traits": ["HW_NUMA_ROOT", "COMPUTE_NODE"],
    }
    values: Iterable[Any] = [
        *(provider(f"p{n}", f"p{n - 1}" if n % 10 else None, **fields) for n in range(50)),
        *(consumer(f"c{n}", {f"p{n}": {"VCPU": 1, "DISK_GB": 2}}) for n in range(50)),
        *(placement_group(f"g{n}", [f"c{n}", f"c{n + 25}"]) for n in range(25)),
    ]
    assert run("import", "-", input=lines(*values)).exit_code == 0
    data = snapshot(engine)
    assert {kind: len(rows) for kind, rows in data.items() if kind != "names"} == {
        "providers": 50,
        "provider_traits": 100,
        "provider_aggregates": 0,
        "inventories": 100,
        "consumers": 50,
        "allocations": 100,
        "placement_groups": 25,
        "placement_group_members": 50,
    }
    assert max(len(path) for _, _, _, _, path, _ in data["providers"]) == 10


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("missing.jsonl", None, "missing.jsonl cannot be read: No such file or directory"),
        ("plain.jsonl.gz", b"{}", "plain.jsonl.gz cannot be read: Not a gzipped file"),
        (
            "cut.jsonl.gz",
            gzip.compress(b" " * 99, mtime=0)[:-9],
            "cut.jsonl.gz cannot be read: Compressed file ended",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(
    app: Any, run: Run, tmp_path: Path, name: str, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    [line] = reported_problems(run("import", str(tmp_path / name)))
    assert problem in line


def test_a_file_that_cannot_be_written_is_an_error(app: Any, run: Run, tmp_path: Path) -> None:
    [line] = reported_problems(run("export", str(tmp_path / "nowhere" / "cloud.jsonl")))
    assert line.endswith("cloud.jsonl cannot be written: No such file or directory")


@pytest.mark.parametrize("arguments", [[], ["file", "--from", "http://127.0.0.1:1"]])
def test_an_import_has_one_source(run: Run, arguments: list[str]) -> None:
    result = run("import", *arguments)
    assert result.exit_code == 2
    assert "Name either a FILE or a service" in result.stderr


def test_only_a_file_can_be_partial(run: Run) -> None:
    result = run("import", "--partial", "--from", "http://127.0.0.1:1", "--token", "admin")
    assert result.exit_code == 2
    assert "Omit --partial" in result.stderr


def test_locked_out_writers_wait_and_readers_do_not(cloud: None, call: Call, engine: Engine) -> None:
    uuid = uuid_of("ss")
    # Not on the providers of the deleted consumer: that request would wait for this one, in the same batch.
    allocations = {uuid_of("bare"): {"resources": {"CUSTOM_GPU": 1}}}
    owner = {"project_id": "new", "user_id": "new", "consumer_generation": None, "consumer_type": "NEW"}
    requests = [
        ("PUT", f"/allocations/{uuid_of('late')}", {"allocations": allocations, **owner}),
        ("DELETE", f"/allocations/{uuid_of('consumer')}", None),
        ("POST", "/resource_providers", {"name": "late"}),
        ("PUT", f"/resource_providers/{uuid}", {"name": "renamed"}),
        ("DELETE", f"/resource_providers/{uuid_of('pf')}/traits", None),
        ("PUT", "/traits/CUSTOM_LATE", None),
        ("DELETE", "/resource_classes/CUSTOM_EMPTY", None),
    ]
    with ThreadPoolExecutor(len(requests)) as pool, engine.connect() as connection:
        maintenance.lock_out_writers(connection)
        sent = [pool.submit(call, *request) for request in requests]
        waiting = text(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM"
            " pg_database WHERE datname = current_database())"
        )
        while connection.scalar(waiting) < len(requests):
            assert not any(request.done() for request in sent)
        assert call("GET", f"/resource_providers/{uuid}")["name"] == "ss"
        # The waiting claim holds no lock of a row that this transaction needs. Otherwise, PostgreSQL would
        # find the deadlock at once.
        connection.execute(text("SET LOCAL deadlock_timeout = 1"))
        for table, column in (
            ("projects", "external_id"),
            ("users", "external_id"),
            ("consumer_types", "name"),
        ):
            connection.execute(text(f"INSERT INTO {table} ({column}) VALUES ('NEW'), ('new')"))
        connection.rollback()
        for request in sent:
            request.result(timeout=60)


def test_claims_succeed_during_an_import(call: Call, run: Run, engine: Engine) -> None:
    run("import", "-", input=lines(provider("present", inventories=vcpus(1000))))
    values = [
        *(provider(f"host {n}", "present", inventories=vcpus(8)) for n in range(100)),
        *(consumer(f"in {n}", {f"host {n}": {"VCPU": 1}, "present": {"VCPU": 1}}) for n in range(100)),
    ]
    stop = Event()

    def claim(client: int) -> int:
        claims = 0
        while not stop.is_set():
            owner = {"project_id": f"project {claims}", "user_id": "user", "consumer_type": "INSTANCE"}
            allocations = {uuid_of("present"): {"resources": {"VCPU": 1}}}
            new = uuid_of(f"client {client} claim {claims}")
            call(
                "PUT",
                f"/allocations/{new}",
                {**owner, "allocations": allocations, "consumer_generation": None},
            )
            if claims % 2:
                call("DELETE", f"/allocations/{new}")
            claims += 1
        return claims // 2 + claims % 2

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(claim, client) for client in range(4)]
        try:
            imported = run("import", "-", input=lines(*values))
        finally:
            stop.set()
    assert imported.exit_code == 0
    allocated = 100 + sum(client.result() for client in clients)
    assert call("GET", f"/resource_providers/{uuid_of('present')}/usages")["usages"] == {"VCPU": allocated}
    assert len(snapshot(engine)["allocations"]) == allocated + 100
