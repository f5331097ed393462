"""A PostgreSQL cluster of three nodes that Patroni manages, with etcd, for tests of failures."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import yaml
from sqlalchemy import create_engine, text

from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from placement_svc.provisioning.installation import binary, system_user
from tests.cluster.cut_proxy import CutProxy
from tests.cluster.small_disk import SmallDisk
from tests.support.failover import make_directory
from tests.support.service import free_port

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PATRONI = ROOT / ".venv/patroni/bin/patroni"
SETTINGS = ROOT / "deploy/patroni/patroni.yml"

NODES = 3
START_SECONDS = 120
"""Seconds until the cluster is complete, after its start or a fault; a lost leader alone takes its TTL."""


def wait_for(condition: Callable[[], T | None], what: str) -> T:
    """Wait until `condition()` is true, and return it; raises AssertionError after `START_SECONDS`."""
    deadline = time.monotonic() + START_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return value


def spawn(command: list[str | Path], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, as a user other than root."""
    owner = system_user() if os.geteuid() == 0 else None
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            user=owner.pw_uid if owner else None,
            group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"} | environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


class Etcd:
    """An etcd of one member."""

    def __init__(self, directory: Path) -> None:
        make_directory(directory / "etcd")
        self._directory = directory
        self.port, self._peer_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, also again after `kill`."""
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer_port}"
        options = {
            "data-dir": self._directory / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        command = ["etcd", *(f"--{name}={value}" for name, value in options.items())]
        self._process = spawn(command, self._directory / "etcd.log")

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def kill(self) -> None:
        """Kill the server, without a chance to clean up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Node:
    """A Patroni and its PostgreSQL."""

    def __init__(self, directory: Path, name: str, etcd_port: int) -> None:
        self.name = name
        self._directory = directory
        self.disk = SmallDisk(directory / f"{name}-disk")
        self._data = self.disk.path / "data"
        self._rest_port, self.port = free_port(), free_port()
        self.proxy = CutProxy(self.port)
        self._configuration = directory / f"{name}.yml"
        self._configuration.write_text(yaml.safe_dump(self._settings(etcd_port)))
        self._configuration.chmod(0o644)
        self._process: subprocess.Popen[bytes] | None = None

    def _settings(self, etcd_port: int) -> dict[str, Any]:
        """Return the settings of deploy/patroni, with the addresses and directories of the test."""
        settings: dict[str, Any] = yaml.safe_load(SETTINGS.read_text())
        settings["name"] = self.name
        rest = f"127.0.0.1:{self._rest_port}"
        settings["restapi"] |= {"listen": rest, "connect_address": rest}
        settings["etcd3"] = {"hosts": f"127.0.0.1:{etcd_port}"}
        address = f"127.0.0.1:{self.port}"
        users = {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}}
        settings["postgresql"] |= {
            "listen": address,
            "connect_address": address,
            "data_dir": str(self._data),
            "bin_dir": str(binary("postgres").parent),
            "pgpass": str(self._directory / f"{self.name}.pgpass"),
            "authentication": users,
            "pg_hba": [
                "local all all trust",
                "host all all 127.0.0.1/32 trust",
                "host replication replicator 127.0.0.1/32 trust",
            ],
        }
        settings["postgresql"]["parameters"] = {
            "unix_socket_directories": str(self._directory),
            "shared_buffers": "64MB",
        }
        return settings

    def start(self) -> None:
        """Start Patroni, which starts PostgreSQL; also again after `kill`."""
        command = [PATRONI, self._configuration]
        self._process = spawn(command, self._directory / f"{self.name}.log", PYTHONUNBUFFERED="1")

    def request(self, path: str) -> Any:
        """Send a GET to Patroni's REST API; return the response, None if there is none."""
        with (
            suppress(URLError, OSError, json.JSONDecodeError),
            urlopen(f"http://127.0.0.1:{self._rest_port}{path}", timeout=2) as response,
        ):
            return json.load(response)
        return None

    def switch_over(self) -> int:
        """Ask Patroni to let another node be the primary; return the status of its response."""
        data = json.dumps({"leader": self.name}).encode()
        try:
            with urlopen(f"http://127.0.0.1:{self._rest_port}/switchover", data, timeout=30) as response:
                return int(response.status)
        except HTTPError as error:
            return error.code

    def postgres(self) -> list[int]:
        """Return the process ids of PostgreSQL, its postmaster first."""
        try:
            postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
            # Another process may have the id of a server that is dead.
            if str(self._data) not in Path(f"/proc/{postmaster}/cmdline").read_text():
                return []
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return []
        return [postmaster, *map(int, children)]

    def signal_postgres(self, number: int) -> None:
        """Send a signal to all processes of PostgreSQL."""
        for pid in self.postgres():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _signal_patroni(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """Stop Patroni, which stops PostgreSQL."""
        self._signal_patroni(signal.SIGTERM)
        if self._process is not None:
            self._process.wait()

    def kill_patroni(self) -> None:
        """Kill Patroni; PostgreSQL continues without it."""
        self._signal_patroni(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def kill(self) -> None:
        """Kill Patroni and PostgreSQL, like a loss of power."""
        self.kill_patroni()
        self.signal_postgres(signal.SIGKILL)

    def erase(self) -> None:
        """Remove the data of a killed node."""
        shutil.rmtree(self._data)

    def freeze(self) -> None:
        """Stop Patroni and PostgreSQL; the kernel still acknowledges what they are sent."""
        self._signal_patroni(signal.SIGSTOP)
        self.signal_postgres(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let Patroni and PostgreSQL continue."""
        self.signal_postgres(signal.SIGCONT)
        self._signal_patroni(signal.SIGCONT)


class PatroniCluster:
    """Three nodes with synchronous replication; the service reaches each through a proxy."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.etcd = Etcd(directory)
        self.nodes = [Node(directory, f"node{number}", self.etcd.port) for number in range(1, NODES + 1)]

    @cached_property
    def url(self) -> str:
        """The URL of the service's database, with all hosts."""
        hosts = ",".join(["127.0.0.1"] * NODES)
        ports = ",".join(str(node.proxy.port) for node in self.nodes)
        return f"postgresql://postgres@/placement?host={hosts}&port={ports}&sslmode=disable"

    def logs(self) -> list[Path]:
        """Return the log files of etcd, and of Patroni and PostgreSQL of each node."""
        return sorted(self._directory.glob("*.log"))

    def members(self) -> list[dict[str, Any]]:
        """Return the members as the first node that answers sees them."""
        for node in self.nodes:
            if answer := node.request("/cluster"):
                members: list[dict[str, Any]] = answer["members"]
                return members
        return []

    def leader(self, other_than: Node | None = None) -> Node | None:
        """Return the node that says it is the primary, if one does."""
        for node in self.nodes:
            if node is not other_than and (node.request("/patroni") or {}).get("role") == "primary":
                return node
        return None

    def wait_for_leader(self, other_than: Node | None = None) -> Node:
        """Wait for a primary, and return it."""
        return wait_for(lambda: self.leader(other_than), "no leader")

    def switch_over(self) -> Node:
        """Ask Patroni for a planned switchover; return the former primary.

        Patroni may not know the outcome (503): for some 20 seconds after an outage of etcd, the standbys do
        not notice that the primary has given up.
        """
        primary = self.wait_for_leader()
        assert primary.switch_over() in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE)
        self.wait_for_leader(other_than=primary)
        return primary

    def is_complete(self) -> bool:
        """Return whether there are a leader and two standbys, one of them synchronous."""
        states = sorted((member["role"], member["state"]) for member in self.members())
        return states == [("leader", "running"), ("replica", "streaming"), ("sync_standby", "streaming")]

    def wait_until_complete(self) -> None:
        """Wait until all nodes work together."""
        try:
            wait_for(self.is_complete, "the cluster is not complete")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.members()}") from None

    def start(self) -> None:
        """Start all nodes, and wait until they work together."""
        self.etcd.start()
        for node in self.nodes:
            node.start()
        self.wait_until_complete()

    def stop(self) -> None:
        """Kill everything."""
        for node in self.nodes:
            node.thaw()
            node.kill()
            node.disk.unmount()
        self.etcd.kill()


def server_url(node: Node, database: str) -> str:
    return f"postgresql+psycopg2://postgres@127.0.0.1:{node.port}/{database}"


def create_database(cluster: PatroniCluster) -> None:
    """Create the database with its schema, and wait until all nodes have it."""
    leader = cluster.wait_for_leader()
    admin = create_engine(server_url(leader, "postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text("CREATE DATABASE placement"))
        engine = connect(server_url(leader, "placement"))
        schema.upgrade(engine)
        engine.dispose()
        not_replayed = text(
            "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()"
        )
        wait_for(lambda: connection.scalar(not_replayed) == 0, "a standby does not replay the schema")
    admin.dispose()


@contextmanager
def patroni_cluster(directory: Path) -> Iterator[PatroniCluster]:
    """Run a cluster in a directory that any user may enter."""
    base = directory / "cluster"
    make_directory(base)
    base.chmod(0o711)
    cluster = PatroniCluster(base)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(base, ignore_errors=True)
