"""The cost of a claim and of a search: processor time, write-ahead log, statements and memory.

`python -m bench.costs` prints them. Processor time depends on the machine; the other values do not.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from bench import clouds
from bench.claims import claim_one
from bench.environment import serve_cloud
from bench.measuring import candidates_path
from bench.scenarios import SCENARIOS, Request
from bench.services import Server
from placement_svc.provisioning import embedded

CLAIM_CLIENTS = (1, 8)
SEARCHES = (("flat", 10), ("flat", 1000), ("nested", 10), ("nested", 1000))
"""Scenarios whose first request is measured, with the limit."""

STATISTICS_SECONDS = 11.0
"""Seconds after which an idle session of PostgreSQL has reported its statistics."""

_WRITTEN = text("""
    SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'),
           (SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal')
""")


@dataclass(frozen=True)
class Cost:
    """The cost of one request: processor time in ms; `memory` is the growth of all workers in MB."""

    name: str
    service: float
    postgres: float
    wal_bytes: float
    wal_syncs: float
    statements: float
    memory: float


class CostMeter:
    """Measures what requests to a server cost."""

    def __init__(self, server: Server, connection: Connection, postmaster: int) -> None:
        self._server, self._connection, self._postmaster = server, connection, postmaster

    def measure(self, name: str, run: Callable[[], int]) -> Cost:
        """Return the cost of each request that `run` sends; it returns their number."""
        run()
        written = self._written()
        statements, seconds, memory = self._statements(), self._seconds(), self._peak_memory(reset=True)
        number = run()
        service, postgres = (after - before for before, after in zip(seconds, self._seconds(), strict=True))
        wal_bytes, wal_syncs = (
            after - before for before, after in zip(written, self._written(), strict=True)
        )
        return Cost(
            name,
            service=service * 1000 / number,
            postgres=postgres * 1000 / number,
            wal_bytes=wal_bytes / number,
            wal_syncs=wal_syncs / number,
            statements=(self._statements() - statements) / number,
            memory=(self._peak_memory(reset=False) - memory) / 2**20,
        )

    def _seconds(self) -> tuple[float, float]:
        """Return the processor time of the service and of PostgreSQL."""
        return cpu_seconds(self._server.pid), cpu_seconds(self._postmaster)

    def _statements(self) -> float:
        """Return the number of SQL statements of all requests so far."""
        metrics = self._server.service.request("GET", "/metrics").decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
            if sample.name == "placement_request_sql_statements_sum"
        )

    def _written(self) -> tuple[int, int]:
        """Return the bytes and syncs of the write-ahead log, when all sessions have reported theirs."""
        time.sleep(STATISTICS_SECONDS)
        wal_bytes, wal_syncs = self._connection.execute(_WRITTEN).one()
        self._connection.rollback()
        return int(wal_bytes), int(wal_syncs)

    def _peak_memory(self, *, reset: bool) -> int:
        """Return the peak memory of all workers in bytes; with `reset`, let it begin at the present value."""
        total = 0
        for worker in _children(self._server.pid):
            if reset:
                Path(f"/proc/{worker}/clear_refs").write_text("5")
            status = Path(f"/proc/{worker}/status").read_text()
            total += int(status.split("VmHWM:")[1].split()[0]) * 1024
        return total


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its children, ended ones included; 0 for no process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = _children(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_seconds, children))


def _claims(server: Server, hosts: int, clients: int, claims: int) -> Callable[[], int]:
    """Return a function that sends claims from several clients, each to hosts of its own in turn."""
    uuids = [clouds.uuid_of(name) for name in clouds.host_names(hosts)]

    def client(number: int) -> None:
        with closing(server.service.connect()) as connection:
            for claim in range(claims // clients):
                granted = claim_one(server.service, connection, uuids[(claim * clients + number) % hosts])
                assert granted

    def run() -> int:
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))
        return claims // clients * clients

    return run


def _searches(server: Server, request: Request, limit: int, searches: int) -> Callable[[], int]:
    path = candidates_path(request.query, limit)

    def run() -> int:
        for _ in range(searches):
            server.service.request("GET", path)
        return searches

    return run


@click.command()
@click.option("--hosts", default=1000, show_default=True, type=click.IntRange(10))
@click.option("--claims", default=4000, show_default=True, type=click.IntRange(8))
@click.option("--searches", default=100, show_default=True, type=click.IntRange(1))
def main(hosts: int, claims: int, searches: int) -> None:
    """Print the cost of a claim and of a search."""
    columns = ("request", "service ms", "PostgreSQL ms", "WAL bytes", "WAL syncs", "statements", "memory MB")
    click.echo("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")

    def show(cost: Cost) -> None:
        cells = (
            *(f"{cost.service:.2f}", f"{cost.postgres:.2f}", f"{cost.wal_bytes:.0f}"),
            *(f"{cost.wal_syncs:.2f}", f"{cost.statements:.1f}", f"{cost.memory:.1f}"),
        )
        click.echo(f"| {cost.name} | " + " | ".join(cells) + " |")

    with (
        TemporaryDirectory(prefix="placement-costs-") as directory,
        embedded.start(Path(directory)) as running,
    ):
        postmaster = int(Path(directory, "postgres/postmaster.pid").read_text().split()[0])
        engine = create_engine(running.url, poolclass=NullPool)
        with engine.connect() as connection:
            with serve_cloud(running.url, clouds.unlimited(hosts), None) as environment:
                meter = CostMeter(environment.ours, connection, postmaster)
                for clients in CLAIM_CLIENTS:
                    run = _claims(environment.ours, hosts, clients, claims)
                    show(meter.measure(f"claim, {clients} clients", run))
            for name, limit in SEARCHES:
                [scenario] = [scenario for scenario in SCENARIOS if scenario.name == name]
                with serve_cloud(running.url, scenario.cloud(hosts), None) as environment:
                    meter = CostMeter(environment.ours, connection, postmaster)
                    run = _searches(environment.ours, scenario.requests[0], limit, searches)
                    show(meter.measure(f"search, {name}, limit {limit}", run))


if __name__ == "__main__":
    main()
