"""The hosts of a database URL: connect to one of them, and examine each by itself."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any

import psycopg2  # type: ignore[import-untyped]

from placement_svc.db.connections.sockets import fetch_value
from placement_svc.db.connections.urls import APPLICATION_NAME, hosts_and_ports

PROBE_TIMEOUT = 5
"""Seconds that a server has to respond to a new connection.

A server that is overloaded responds late, and ending its connections would only add to its load. A cluster
takes longer than this to elect another primary.
"""

PROBE_NAME = f"{APPLICATION_NAME} probe"
"""The `application_name` of a probe, so that it does not count as a session of a service."""

AVOID_SECONDS = 60.0
"""Seconds for which no request waits for a host that has not responded, or uses one that is replaced.

A thread examines the host meanwhile, so that it is used again as soon as it can be.
"""

FAILOVER_SECONDS = 5.0
"""Seconds for which new connections wait after no host is usable any more: a planned switchover takes less.

After that, and before the first connection, they fail at once.
"""

OUTAGE_SECONDS = 30.0
"""Seconds without an attempt to connect after which the next failure is the start of another outage.

Sessions may have been in use meanwhile. This is more than the usual interval of readiness probes.
"""

RETRY_INTERVAL = 0.1
"""Seconds between two attempts of a worker to connect to any of the hosts, while none is usable.

Each attempt opens a session on every standby. Without this limit, all requests do so again and again.
"""

# The first eight digits of the name of the current segment of the log, which a promotion increments.
# A standby responds with an error.
TIMELINE = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"

Arguments = Mapping[str, Any]
"""The arguments of a connection, as psycopg2 takes them."""


@dataclass(frozen=True)
class Server:
    """The address of a server as libpq has it; the host may be the directory of a Unix socket."""

    host: str
    port: str


class ServerHosts:
    """Connects to the first of several hosts that has the requested role.

    libpq itself does not try the next host after one that accepts a connection and closes it, as a proxy does
    whose server is down, nor after one that refuses the session, for want of a free connection or otherwise.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._examining = Lock()
        """Held while a thread examines a server that is avoided."""
        self._avoided: dict[Server, float] = {}
        """Until when these servers are avoided."""
        self._has_connected = False
        self._unusable_since = -inf
        """When the latest outage has started, with the first attempt that has failed."""
        self._failed_at = -inf
        """When the latest attempt has failed; -inf if it has succeeded."""
        self._failure: str | None = None
        """The error of the last attempt, None if it has succeeded."""
        self._next_attempt = -inf
        self._arguments: dict[str, Any] = {}

    def connect(self, arguments: Arguments) -> Any:
        """Return a connection of psycopg2, None if libpq is to open it: with one host, or with `hostaddr`.

        Waits up to `FAILOVER_SECONDS` if no host is usable, then raises `psycopg2.OperationalError` with the
        messages of all hosts.
        """
        self._arguments = dict(arguments)
        servers = _servers(arguments)
        if len(servers) == 1 or "hostaddr" in arguments:
            return None
        while True:
            try:
                connection = self._attempt(servers, arguments)
            except psycopg2.OperationalError:
                if not self._may_wait():
                    raise
                sleep(RETRY_INTERVAL)
            else:
                with self._lock:
                    self._has_connected = True
                    self._failed_at = -inf
                return connection

    def _may_wait(self) -> bool:
        """Return whether to wait after an attempt that has failed."""
        with self._lock:
            now = monotonic()
            if now - self._failed_at > OUTAGE_SECONDS:
                self._unusable_since = now
            self._failed_at = now
            return self._has_connected and now - self._unusable_since < FAILOVER_SECONDS

    def _attempt(self, servers: list[Server], arguments: Arguments) -> Any:
        """Connect, or fail as the last attempt did if that was less than `RETRY_INTERVAL` ago."""
        with self._lock:
            if self._failure is not None and monotonic() < self._next_attempt:
                raise psycopg2.OperationalError(self._failure)
            self._next_attempt = monotonic() + RETRY_INTERVAL
        failure = None
        try:
            return self._connect_to_first(servers, arguments)
        except psycopg2.OperationalError as error:
            failure = str(error)
            raise
        finally:
            self._failure = failure

    def _connect_to_first(self, servers: list[Server], arguments: Arguments) -> Any:
        """Connect to the first server that has the requested role."""
        if arguments.get("load_balance_hosts") == "random":
            random.shuffle(servers)
        role = arguments.get("target_session_attrs", "any")
        failures = []
        for accepted in ("standby", "any") if role == "prefer-standby" else (role,):
            for server in servers:
                try:
                    return self._connect_to(server, {**arguments, "target_session_attrs": accepted})
                except psycopg2.OperationalError as error:
                    failures.append(str(error).strip())
        raise psycopg2.OperationalError("\n".join(failures))

    def _connect_to(self, server: Server, arguments: Arguments) -> Any:
        """Connect to one server; avoid it from now on if it does not respond in time."""
        if self._is_avoided(server):
            if self._examining.acquire(blocking=False):
                Thread(target=self._examine, args=(server,), name="host-check", daemon=True).start()
            address = f'"{server.host}", port {server.port}'
            raise psycopg2.OperationalError(
                f"connection to server at {address} failed: it has not responded, or is replaced"
            )
        started = monotonic()
        try:
            return psycopg2.connect(**{**arguments, "host": server.host, "port": server.port})
        except psycopg2.OperationalError:
            timeout = int(arguments.get("connect_timeout", 0))
            if timeout and _has_timed_out(started, timeout):
                self.avoid(server)
            raise

    def _is_avoided(self, server: Server) -> bool:
        with self._lock:
            return self._avoided.get(server, 0.0) > monotonic()

    def avoid(self, server: Server) -> None:
        """Open no new connections to a server for a while, unless it responds and is not replaced."""
        with self._lock:
            self._avoided[server] = monotonic() + AVOID_SECONDS

    def _examine(self, server: Server) -> None:
        try:
            if not self.responds(server) or self.is_replaced(server):
                self.avoid(server)
                return
            with self._lock:
                self._avoided.pop(server, None)
        finally:
            self._examining.release()

    def responds(self, server: Server) -> bool:
        """Return whether a server responds to a new connection, whatever the response."""
        started = monotonic()
        try:
            psycopg2.connect(**self._probe_arguments(server), connect_timeout=PROBE_TIMEOUT).close()
        except psycopg2.Error:
            return not _has_timed_out(started, PROBE_TIMEOUT)
        return True

    def is_replaced(self, server: Server) -> bool:
        """Return whether another host is a primary on a newer timeline than this one."""
        others = [each for each in _servers(self._arguments) if each != server]
        timeline = self._timeline(server) if others else None
        return timeline is not None and any((self._timeline(each) or "") > timeline for each in others)

    def _timeline(self, server: Server) -> str | None:
        """Return the timeline of a primary, None if the server is no primary or does not respond in time."""
        try:
            return str(fetch_value(self._probe_arguments(server), TIMELINE, PROBE_TIMEOUT))
        except psycopg2.Error:
            return None

    def _probe_arguments(self, server: Server) -> dict[str, Any]:
        """Return the arguments of a connection to one server, whatever its role."""
        omitted = ("options", "target_session_attrs", "connect_timeout")
        arguments = {name: value for name, value in self._arguments.items() if name not in omitted}
        return arguments | {"host": server.host, "port": server.port, "application_name": PROBE_NAME}


def _has_timed_out(started: float, timeout: int) -> bool:
    """Return whether libpq, which has failed since `started`, has waited for as long as it may.

    It measures by another clock, and before version 17 in whole seconds, so that it may end a second early.
    """
    return monotonic() - started > timeout - 1


def _servers(arguments: Arguments) -> list[Server]:
    """Return the servers of the arguments of a connection, in their order."""
    return [Server(host, port) for host, port in hosts_and_ports(arguments)]
