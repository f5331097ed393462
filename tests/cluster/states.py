"""Write what a cluster, its services and their clients do to files, for the analysis of a failure."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg2  # type: ignore[import-untyped]

from tests.cluster.load import Ledger
from tests.cluster.patroni_cluster import Node, PatroniCluster
from tests.support.service import Service

VIEWS = (
    "SELECT pg_is_in_recovery(), current_setting('synchronous_standby_names'), pg_current_wal_insert_lsn()",
    "SELECT application_name, state, sync_state, sent_lsn, replay_lsn FROM pg_stat_replication",
    "SELECT pid, application_name, client_port, state, wait_event_type, wait_event, now() - xact_start,"
    " pg_blocking_pids(pid), left(query, 60) FROM pg_stat_activity WHERE backend_type <> 'checkpointer'",
)
LAST_ANSWERS = 50


@contextmanager
def states_on_failure(
    directory: Path | None, cluster: PatroniCluster, services: Sequence[Service], ledger: Ledger
) -> Iterator[None]:
    """Write files into a directory, if one is given, when the block raises an AssertionError."""
    try:
        yield
    except AssertionError as error:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "error").write_text(str(error))
            _write_services(directory, services)
            _write_ledger(directory / "ledger", ledger)
            for node in cluster.nodes:
                (directory / f"{node.name}.state").write_text("\n".join(_node_lines(node)))
            for log in cluster.logs():
                shutil.copy(log, directory)
        raise


def _write_services(directory: Path, services: Sequence[Service]) -> None:
    for number, service in enumerate(services):
        shutil.copy(service.log, directory / f"service{number}.log")
        stacks = directory / f"service{number}.stacks"
        with stacks.open("w") as output:
            for worker in service.workers():
                if command := shutil.which("py-spy"):
                    subprocess.run([command, "dump", "--pid", str(worker)], stdout=output, stderr=output)


def _write_ledger(file: Path, ledger: Ledger) -> None:
    last = [
        (uuid, ledger.held[uuid], answers) for uuid, answers in list(ledger.answers.items())[-LAST_ANSWERS:]
    ]
    held = [list(ledger.held.values()).count(value) for value in (True, False, None)]
    lines = [f"statuses {ledger.statuses}", f"held, not held, unknown: {held}", *map(str, last)]
    file.write_text("\n".join(lines))


def _node_lines(node: Node) -> Iterator[str]:
    """Yield what Patroni and PostgreSQL of a node say."""
    yield json.dumps(node.request("/patroni"))
    yield json.dumps(node.request("/cluster"))
    for view in VIEWS:
        try:
            connection = psycopg2.connect(
                host="127.0.0.1",
                port=node.port,
                user="postgres",
                dbname="postgres",
                connect_timeout=5,
                options="-c statement_timeout=5s",
            )
            with connection, connection.cursor() as cursor:
                cursor.execute(view)
                yield from map(str, cursor.fetchall())
        except psycopg2.Error as error:
            yield str(error)
