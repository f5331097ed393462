"""A subtree moves while a provider in it is written, without a deadlock."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, text

from placement_svc.db import inventories, provider_traits, providers, reshaper
from placement_svc.db.claims import procedures
from placement_svc.db.connections.engine import Database
from placement_svc.domain.allocations import Claim
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.reshaper import ProviderReshape, Reshape
from tests.support.database_statistics import count_deadlocks
from tests.support.lock_waits import count_waiting
from tests.support.service import wait_until

GATE = 4711

CREATE_GATE = f"""
    CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared({GATE});
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER wait_at_gate BEFORE UPDATE ON resource_providers EXECUTE FUNCTION wait_at_gate()
"""

INVENTORIES = {"VCPU": Inventory(total=8)}


def replace_traits(connection: Connection, uuid: str) -> None:
    provider_traits.replace(connection, uuid, 1, ["HW_CPU_X86_AVX"])


def remove_traits(connection: Connection, uuid: str) -> None:
    provider_traits.remove_all(connection, uuid)


def replace_inventories(connection: Connection, uuid: str) -> None:
    inventories.replace_all(connection, uuid, 1, INVENTORIES, 0)


def reshape(connection: Connection, uuid: str) -> None:
    claim = Claim(str(uuid4()), "project", "user", "INSTANCE", None, {uuid: {"VCPU": 1}})
    reshaper.reshape(connection, Reshape({uuid: ProviderReshape(1, INVENTORIES)}, [claim]))


@pytest.fixture
def gate(engine: Engine) -> Iterator[Connection]:
    """A connection that can close the gate: all updates of providers then wait until it commits."""
    with engine.begin() as connection:
        connection.execute(text(CREATE_GATE))
    with engine.connect() as connection:
        yield connection
    with engine.begin() as connection:
        connection.execute(text("DROP FUNCTION wait_at_gate CASCADE"))


def wait_for_blocked(engine: Engine, count: int) -> None:
    """Wait until that many connections wait for a lock."""
    wait_until(lambda: count_waiting(engine) >= count)


@pytest.mark.parametrize("change", [replace_traits, remove_traits, replace_inventories, reshape])
def test_subtree_moves_while_a_provider_in_it_is_written(
    change: Callable[[Connection, str], None], database: Database, gate: Connection, engine: Engine, call: Any
) -> None:
    new_parent, subtree, child = (str(uuid4()) for _ in range(3))
    for uuid, parent in ((new_parent, None), (subtree, None), (child, subtree)):
        database.write(providers.create, uuid, uuid, parent)
    database.write(provider_traits.replace, child, 0, ["STORAGE_DISK_SSD"])
    gate.execute(text(f"SELECT pg_advisory_xact_lock({GATE})"))
    attempts = []

    def write(connection: Connection) -> None:
        attempts.append("write")
        change(connection, child)

    def move(connection: Connection) -> None:
        attempts.append("move")
        providers.change(connection, subtree, subtree, new_parent, may_leave_parent=True)

    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(database.write, write)
        wait_for_blocked(engine, 1)
        moving = threads.submit(database.write, move)
        wait_for_blocked(engine, 2)
        gate.commit()
        writing.result()
        moving.result()
    assert attempts == ["write", "move"]
    assert call("GET", f"/resource_providers/{child}")["root_provider_uuid"] == new_parent


def test_subtree_moves_while_a_provider_in_it_is_claimed_by_a_batch(
    database: Database, gate: Connection, engine: Engine, call: Any
) -> None:
    new_parent, subtree, child = (str(uuid4()) for _ in range(3))
    for uuid, parent in ((new_parent, None), (subtree, None), (child, subtree)):
        database.write(providers.create, uuid, uuid, parent)
    database.write(inventories.replace_all, child, 0, INVENTORIES, 0)
    gate.execute(text(f"SELECT pg_advisory_xact_lock({GATE})"))
    claims = [
        Claim(str(uuid4()), "project", "user", "INSTANCE", None, {child: {"VCPU": 1}}) for _ in range(3)
    ]
    deadlocks = count_deadlocks(engine)
    with ThreadPoolExecutor(2) as threads:
        claiming = threads.submit(procedures.claim_batch, database, claims)
        wait_for_blocked(engine, 1)
        moving = threads.submit(
            database.write, providers.change, subtree, subtree, new_parent, may_leave_parent=True
        )
        wait_for_blocked(engine, 2)
        gate.commit()
        assert claiming.result() is None
        moving.result()
    assert count_deadlocks(engine) == deadlocks
    moved = call("GET", f"/resource_providers/{child}")
    assert (moved["root_provider_uuid"], moved["generation"]) == (new_parent, 1 + len(claims))
