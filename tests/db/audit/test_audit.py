"""Audits find each kind of inconsistency, and fix it where that is possible."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, text

from placement_svc import config
from placement_svc.cli import main
from placement_svc.config import Settings
from placement_svc.db.audit.rules import ORPHANED_ALLOCATION, OVERCOMMIT, RULES
from tests.db.audit.test_audit_catalog import COVERED
from tests.support.cloud import load, read, uuid_of
from tests.support.placement_groups import add_members
from tests.support.sample_cloud import Call
from tests.support.snapshot import snapshot

Run = Callable[..., Result]

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"

CLOUD = (
    "cn{VCPU8 used4 DISK_GB9}#COMPUTE_NODE,HW_NUMA_ROOT@A,B; numa<cn{MEMORY_MB64 used8}@B;"
    "pf<numa{SRIOV_NET_VF4 used4}#HW_NUMA_ROOT; other{DISK_GB9 used9}@A; below<other{VCPU1 res9}"
)

IDS = """
    WITH id AS (
        SELECT max(id) FILTER (WHERE name = 'cn') AS cn, max(id) FILTER (WHERE name = 'numa') AS numa,
               max(id) FILTER (WHERE name = 'pf') AS pf, max(id) FILTER (WHERE name = 'other') AS other
          FROM resource_providers
    )
"""


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `audit` on this worker's database."""
    for setting in fields(Settings):
        monkeypatch.delenv(config.variable(setting.name), raising=False)

    def invoke(*arguments: str) -> Result:
        env = {config.variable("database_url"): database_url, "COLUMNS": "80"}
        return CliRunner().invoke(main, ["audit", *arguments], env=env)

    return invoke


@pytest.fixture
def cloud(call: Call) -> None:
    """A consistent cloud, in the database."""
    load(read(CLOUD), lambda method, path, **options: (200, call(method, path, **options)))


def corrupt(engine: Engine, sql: str) -> None:
    """Run a statement without foreign keys and triggers."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(f"{IDS} {sql}"))


def reported(result: Result) -> set[str]:
    """Return the inconsistencies that an audit has reported."""
    return {rule.inconsistency for rule in RULES if f" x {rule.inconsistency}:\n" in result.stdout}


@pytest.mark.parametrize("options", [[], ["--fix"]])
def test_a_consistent_database_has_no_findings(cloud: None, run: Run, options: list[str]) -> None:
    result = run(*options)
    assert (result.exit_code, result.stdout) == (0, "Nothing is wrong\n")


FIXED = {
    "UPDATE resource_providers SET root_id = other, path = ARRAY[other, cn, id] FROM id WHERE id = numa": {
        "root or path that does not match the parents"
    },
    "UPDATE resource_providers SET path = ARRAY[cn, other, numa, pf] FROM id WHERE name = 'pf'": {
        "root or path that does not match the parents"
    },
    "UPDATE inventories SET root_id = other FROM id WHERE provider_id IN (numa, pf)": {
        "root of an inventory that differs from the root of its provider"
    },
    "UPDATE provider_traits SET root_id = other FROM id": {
        "root of a provider trait that differs from the root of the provider"
    },
    "UPDATE provider_aggregates SET root_id = other FROM id WHERE provider_id = numa": {
        "root of an aggregate member that differs from the root of the provider"
    },
    "UPDATE resource_providers SET trait_ids = '{1}' WHERE name IN ('cn', 'numa')": {
        "trait ids that do not match the traits of the provider"
    },
    "UPDATE resource_providers SET trait_ids = '{}'": {
        "trait ids that do not match the traits of the provider"
    },
    "UPDATE inventories SET used = used + 1": {"used amount that is not the sum of the allocations"},
    "UPDATE inventories SET used = 0 FROM id WHERE provider_id = cn": {
        "used amount that is not the sum of the allocations"
    },
    "INSERT INTO consumers (uuid, project_id, user_id) SELECT 'x', project_id, user_id FROM consumers": {
        "consumer without allocations"
    },
}

NOTICES = {
    "INSERT INTO projects (external_id) VALUES ('nobody'), ('nobody else')": {"project without consumers"},
    "INSERT INTO users (external_id) VALUES ('nobody')": {"user without consumers"},
    "INSERT INTO consumer_types (name) VALUES ('NOTHING')": {"consumer type without consumers"},
}


@pytest.mark.parametrize("sql", FIXED)
def test_an_inconsistency_is_found_and_fixed(cloud: None, run: Run, engine: Engine, sql: str) -> None:
    before = snapshot(engine)
    corrupt(engine, sql)
    result = run()
    assert (result.exit_code, reported(result)) == (1, FIXED[sql])
    result = run("--fix")
    assert result.exit_code == 0
    # The fix of one rule may fix rows of later rules too.
    assert set() < reported(result) <= FIXED[sql]
    assert run().stdout == "Nothing is wrong\n"
    assert snapshot(engine) == before


@pytest.mark.parametrize("sql", NOTICES)
def test_a_harmless_leftover_is_a_notice(cloud: None, run: Run, engine: Engine, sql: str) -> None:
    before = snapshot(engine)
    corrupt(engine, sql)
    result = run()
    assert (result.exit_code, reported(result)) == (0, NOTICES[sql])
    assert "\nNotice: " in result.stdout
    assert result.stdout.endswith("\nNothing is wrong\n")
    result = run("--fix")
    assert (result.exit_code, reported(result)) == (0, NOTICES[sql])
    assert run().stdout == "Nothing is wrong\n"
    assert snapshot(engine) == before


def test_an_orphan_is_not_added_to_the_usage(cloud: None, run: Run, engine: Engine) -> None:
    corrupt(
        engine,
        "INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)"
        " SELECT 0, provider_id, resource_class_id, 3 FROM inventories, id"
        " WHERE provider_id = cn AND used = 4",
    )
    try:
        for options in ([], ["--fix"], ["--fix"]):
            result = run(*options)
            assert (result.exit_code, reported(result)) == (1, {ORPHANED_ALLOCATION})
            assert f"    consumer 0 {uuid_of('cn')} VCPU: is consumer 0, should be an" in result.stdout
        with engine.connect() as connection:
            assert sorted(connection.scalars(text("SELECT used FROM inventories"))) == [0, 0, 4, 4, 8, 9]
    finally:
        # As docs/operations.md advises: the trigger would subtract what the usage does not include.
        corrupt(engine, "DELETE FROM allocations WHERE consumer_id = 0")
    assert run().stdout == "Nothing is wrong\n"


def test_leftovers_stay_while_a_consumer_has_lost_its_project(cloud: None, run: Run, engine: Engine) -> None:
    corrupt(engine, "UPDATE projects SET id = id + 1000")
    result = run("--fix")
    assert result.exit_code == 1
    assert "not fixed while there is: consumer of a project that does not exist" in result.stdout
    assert "Fixed" not in result.stdout
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM projects")) == 1


def test_the_owner_of_a_lost_consumer_is_kept(cloud: None, run: Run, engine: Engine) -> None:
    corrupt(engine, "DELETE FROM consumers")
    result = run("--fix")
    assert result.exit_code == 1
    assert result.stdout.count(f"not fixed while there is: {ORPHANED_ALLOCATION}") == 3
    assert "Fixed" not in result.stdout
    with engine.connect() as connection:
        for table in ("projects", "users", "consumer_types"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 1


def test_a_repair_that_a_constraint_refuses_is_reported(cloud: None, run: Run, engine: Engine) -> None:
    check = "ALTER TABLE inventories DROP CONSTRAINT inventories_total_check"
    again = "ALTER TABLE inventories ADD CONSTRAINT inventories_total_check CHECK (total > 0) NOT VALID"
    with engine.begin() as connection:
        connection.execute(text(f"{check}; UPDATE inventories SET total = 0, used = used + 1; {again}"))
    try:
        result = run("--fix")
        assert result.exit_code == 1
        assert 'constraint "inventories_total_check"' in result.stdout
        assert "inventory with a total of 0 or less" in reported(result)
    finally:
        corrupt(engine, "DELETE FROM allocations")
        corrupt(engine, "DELETE FROM inventories")
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE inventories VALIDATE CONSTRAINT inventories_total_check"))


def test_json_has_whole_names(cloud: None, run: Run, engine: Engine) -> None:
    assert json.loads(run("--json").stdout) == {"consistent": True, "findings": []}
    corrupt(engine, "UPDATE resource_providers SET trait_ids = '{}' WHERE name = 'cn'")
    row = {"subject": uuid_of("cn"), "stored": "none"}
    for options, fixed in ((["--json"], False), (["--json", "--fix"], True)):
        result = run(*options)
        document = json.loads(result.stdout)
        row["expected"] = document["findings"][0]["examples"][0]["expected"]
        assert set(row["expected"].split(", ")) == {"COMPUTE_NODE", "HW_NUMA_ROOT"}
        assert (result.exit_code, document) == (
            0 if fixed else 1,
            {
                "consistent": fixed,
                "findings": [
                    {
                        "inconsistency": "trait ids that do not match the traits of the provider",
                        "severity": "error",
                        "count": 1,
                        "fixed": fixed,
                        "obstacle": None,
                        "examples": [row],
                    }
                ],
            },
        )


def test_long_and_hostile_names_are_shown_whole_and_escaped(app: Any, run: Run, engine: Engine) -> None:
    corrupt(engine, "INSERT INTO users (external_id) VALUES (repeat('x', 200) || chr(27) || '[2J')")
    shown = run().stdout
    assert "    " + "x" * 200 + "\\x1b[2J: is 0 consumers, should be 1 or more\n" in shown
    assert "\x1b" not in shown


MEMBERS_IN_ONE_TREE = "group member that violates the policy of its group"


def test_a_broken_placement_group_is_a_notice(cloud: None, run: Run, engine: Engine, call: Call) -> None:
    group = f"/placement_groups/{uuid_of('group')}"
    call("PUT", group, {"policy": "anti-affinity"})
    claim = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}
    uuids = sorted(map(uuid_of, ("one", "two")))
    for uuid in uuids:
        allocations = {uuid_of("cn"): {"resources": {"DISK_GB": 1}}}
        call("PUT", f"/allocations/{uuid}", {"allocations": allocations, **claim})
    add_members(engine, uuid_of("group"), uuids)
    for options in ([], ["--fix"]):
        result = run(*options)
        assert (result.exit_code, reported(result)) == (0, {MEMBERS_IN_ONE_TREE})
        for uuid in uuids:
            line = f"{uuid_of('group')} {uuid}: is on {uuid_of('cn')}, should be in"
            assert f"{line} a domain with at most 1 member\n" in result.stdout
        assert result.stdout.endswith(f"Notice: 2 x {MEMBERS_IN_ONE_TREE}\nNothing is wrong\n")
    call("PUT", group, {"policy": "soft-anti-affinity"})
    assert run().stdout == "Nothing is wrong\n"


def test_an_inventory_below_its_usage_is_a_notice(cloud: None, run: Run, engine: Engine) -> None:
    corrupt(engine, "UPDATE inventories SET total = 1 FROM id WHERE provider_id IN (cn, other)")
    before = snapshot(engine)
    for options in ([], ["--fix"]):
        result = run(*options)
        assert (result.exit_code, reported(result)) == (0, {OVERCOMMIT})
        assert f"    {uuid_of('other')} DISK_GB: is 9, should be 1 or less\n" in result.stdout
        assert result.stdout.endswith(f"Notice: 2 x {OVERCOMMIT}\nNothing is wrong\n")
    document = json.loads(run("--json").stdout)
    assert document["consistent"]
    assert [each["severity"] for each in document["findings"]] == ["notice"]
    assert snapshot(engine) == before


NOT_FIXED = {
    "UPDATE resource_providers SET parent_id = pf, path = ARRAY[cn, pf, numa] FROM id WHERE name = 'numa'": (
        "parents that form a cycle or do not exist",
        [uuid_of("numa"), uuid_of("pf")],
    ),
    "UPDATE resource_providers SET parent_id = 0, path = ARRAY[cn, 0, numa] FROM id WHERE name = 'numa'": (
        "parents that form a cycle or do not exist",
        [uuid_of("numa"), uuid_of("pf"), "parent 0"],
    ),
}


@pytest.mark.parametrize("sql", NOT_FIXED)
def test_an_inconsistency_that_only_the_operator_can_fix_is_left(
    cloud: None, run: Run, engine: Engine, sql: str
) -> None:
    inconsistency, shown = NOT_FIXED[sql]
    corrupt(engine, sql)
    before = snapshot(engine)
    for options in ([], ["--fix"]):
        result = run(*options)
        assert (result.exit_code, reported(result)) == (1, {inconsistency})
        assert [text for text in shown if text not in result.stdout] == []
    assert result.stdout.endswith(f"Left: 2 x {inconsistency}\n")
    assert snapshot(engine) == before


def test_every_rule_is_tested() -> None:
    not_fixed = {inconsistency for inconsistency, _ in NOT_FIXED.values()}
    tested = set().union(
        *FIXED.values(), *NOTICES.values(), not_fixed, COVERED, {MEMBERS_IN_ONE_TREE, OVERCOMMIT}
    )
    assert tested == {rule.inconsistency for rule in RULES}


def test_operations_lists_every_rule() -> None:
    [section] = re.findall(r"^## Auditing a database\n(.*?)(?=^## |\Z)", OPERATIONS.read_text(), re.M | re.S)
    listed = re.findall(r"^\| ((?!what).+?) \| (leaves|)", section, re.M)
    assert listed == [(rule.inconsistency, "" if rule.fix else "leaves") for rule in RULES]


def test_rows_that_a_fix_leaves_unused_are_deleted(cloud: None, run: Run, engine: Engine) -> None:
    corrupt(engine, "DELETE FROM allocations")
    assert reported(run()) == {
        "used amount that is not the sum of the allocations",
        "consumer without allocations",
    }
    assert run("--fix").stdout.endswith(
        "Fixed: 4 x used amount that is not the sum of the allocations, 1 x consumer without allocations,"
        " 1 x project without consumers, 1 x user without consumers, 1 x consumer type without consumers\n"
    )
    with engine.connect() as connection:
        for table in ("consumers", "projects", "users", "consumer_types"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0


def test_all_inconsistent_rows_are_counted_and_the_first_are_shown(
    app: Any, run: Run, engine: Engine
) -> None:
    corrupt(engine, "INSERT INTO users (external_id) SELECT 'user ' || n FROM generate_series(1, 1234) AS n")
    shown = run().stdout
    assert "1,234 x user without consumers:" in shown
    assert "and 1,214 more" in shown
    assert "user 20:" in shown
    assert "user 21:" not in shown


def test_claims_succeed_while_unused_names_are_deleted(cloud: None, call: Call, run: Run) -> None:
    stop = Event()

    def claim_and_release(client: int) -> int:
        rounds = 0
        while not stop.is_set() or rounds < 3:
            consumer = uuid_of(f"client {client} round {rounds}")
            claim = {
                "allocations": {uuid_of("cn"): {"resources": {"DISK_GB": 1}}},
                "project_id": f"project {rounds % 2}",
                "user_id": f"user {client}",
                "consumer_generation": None,
                "consumer_type": f"TYPE_{client}",
            }
            call("PUT", f"/allocations/{consumer}", claim)
            call("DELETE", f"/allocations/{consumer}")
            rounds += 1
        return rounds

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(claim_and_release, client) for client in range(4)]
        try:
            fixes = [run("--fix") for _ in range(8)]
        finally:
            stop.set()
    assert min(client.result() for client in clients) >= 3
    assert {result.exit_code for result in fixes} == {0}
    assert set().union(*map(reported, fixes)) <= {rule.inconsistency for rule in RULES[-3:]}
