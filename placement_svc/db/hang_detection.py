"""Detect a PostgreSQL server that no longer responds or is replaced, and end its connections.

The kernel of a computer acknowledges what arrives for a process that is stopped. So neither the TCP timeouts
nor the keepalives of libpq notice a frozen server, and its `statement_timeout` does not run. Without this
module, all threads would wait for it until it continues.

A primary whose cluster manager has died does not learn that another server was promoted. Its commits wait
without a limit for a synchronous standby, which follows the new primary.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import psycopg2  # type: ignore[import-untyped]
from sqlalchemy import Engine, event

from placement_svc.db.sockets import fetch_value, shut_down

CHECK_INTERVAL = 0.25
"""Seconds between two checks of the connections in use."""

SUSPICION_SECONDS = 2.0
"""Seconds after which a connection in use makes the watchdog probe its server."""

PROBE_INTERVAL = 2.0
"""Seconds from a successful probe of a server to the next one."""

PROBE_TIMEOUT = 5
"""Seconds that a server has to respond to a new connection.

A server that is overloaded responds late, and ending its connections would only add to its load. A cluster
takes longer than this to elect another primary.
"""

AVOID_SECONDS = 60.0
"""Seconds for which new connections try a server last that has not responded or is replaced."""

# The first eight digits of the name of the current segment of the log, which a promotion increments.
# A standby responds with an error.
TIMELINE = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"


@dataclass(frozen=True)
class Server:
    """The address of a server as libpq has it; the host may be the directory of a Unix socket."""

    host: str
    port: str


@dataclass(eq=False)
class _Session:
    """A connection of a pool; `used_since` is the time at which a thread took it (None: it is idle)."""

    server: Server
    used_since: float | None = None


class HangDetector:
    """Watches the connections of an engine.

    A connection that has been in use for more than `SUSPICION_SECONDS` makes the watchdog connect to its
    server anew. If there is no response within `PROBE_TIMEOUT`, or if another host is a primary on a newer
    timeline, all connections to that server are shut down: the threads that wait for it get a connection
    error. A refusal is a response.
    """

    def __init__(self, engine: Engine) -> None:
        self._lock = Lock()
        # A pool that is abandoned does not report that its connections are closed.
        self._sessions: WeakKeyDictionary[Any, _Session] = WeakKeyDictionary()
        self._probed: dict[Server, float] = {}
        """When each server responded to a probe and was not replaced."""
        self._avoided: dict[Server, float] = {}
        """Until when new connections try these servers last."""
        self._arguments: dict[str, Any] = {}
        for name, listener in (
            ("connect", self._opened),
            ("checkout", self._taken),
            ("checkin", self._returned),
            ("close", self._closed),
            ("do_connect", self._order_hosts),
        ):
            event.listen(engine, name, listener)

    def _order_hosts(self, _dialect: Any, _record: Any, _args: Any, arguments: dict[str, Any]) -> None:
        """Let libpq try the servers that have not responded last."""
        self._arguments = dict(arguments)
        servers = _servers(arguments)
        with self._lock:
            now = monotonic()
            avoided = {server for server, until in self._avoided.items() if until > now}
        if len(servers) > 1 and avoided:
            ordered = sorted(servers, key=avoided.__contains__)
            arguments["host"] = ",".join(server.host for server in ordered)
            arguments["port"] = ",".join(server.port for server in ordered)
        _watchdog.watch(self)

    def _opened(self, driver_connection: Any, _record: Any) -> None:
        info = driver_connection.info
        with self._lock:
            self._sessions[driver_connection] = _Session(Server(str(info.host or ""), str(info.port)))

    def _taken(self, driver_connection: Any, *_: Any) -> None:
        with self._lock:
            self._sessions[driver_connection].used_since = monotonic()

    def _returned(self, driver_connection: Any, _record: Any) -> None:
        with self._lock:
            if driver_connection in self._sessions:
                self._sessions[driver_connection].used_since = None

    def _closed(self, driver_connection: Any, _record: Any) -> None:
        with self._lock:
            self._sessions.pop(driver_connection, None)

    def check(self) -> None:
        """Probe the servers of connections that have been in use for long; shut down those that hang."""
        for server in self._suspects():
            if self._responds(server) and not self._is_replaced(server):
                self._probed[server] = monotonic()
            else:
                self._shut_down(server)

    def _suspects(self) -> Iterable[Server]:
        now = monotonic()
        with self._lock:
            suspects = {
                session.server
                for session in self._sessions.values()
                if session.used_since is not None and now - session.used_since > SUSPICION_SECONDS
            }
        return [each for each in suspects if now - self._probed.get(each, 0.0) > PROBE_INTERVAL]

    def _responds(self, server: Server) -> bool:
        """Return whether a server responds to a new connection, whatever the response."""
        started = monotonic()
        try:
            psycopg2.connect(**self._probe_arguments(server), connect_timeout=PROBE_TIMEOUT).close()
        except psycopg2.Error:
            return monotonic() - started < PROBE_TIMEOUT
        return True

    def _is_replaced(self, server: Server) -> bool:
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
        return arguments | {"host": server.host, "port": server.port}

    def _shut_down(self, server: Server) -> None:
        """End all connections to a server; the thread that uses one gets an error at once."""
        with self._lock:
            self._avoided[server] = monotonic() + AVOID_SECONDS
            for driver_connection, session in list(self._sessions.items()):
                if session.server == server:
                    shut_down(driver_connection)


def _servers(arguments: dict[str, Any]) -> list[Server]:
    """Return the servers of the arguments of a connection, in their order."""
    hosts = str(arguments.get("host", "")).split(",")
    ports = str(arguments.get("port", "")).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return [Server(host, port) for host, port in zip(hosts, ports, strict=True)]


class _Watchdog:
    """One thread per process that checks all detectors; it starts with the first connection."""

    def __init__(self) -> None:
        self._detectors: WeakSet[HangDetector] = WeakSet()
        self._lock = Lock()
        self._thread: Thread | None = None

    def watch(self, detector: HangDetector) -> None:
        with self._lock:
            self._detectors.add(detector)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="hang-watchdog", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            sleep(CHECK_INTERVAL)
            with self._lock:
                detectors = list(self._detectors)
            for detector in detectors:
                detector.check()
            # The detector of an engine that is no longer used is not kept.
            detectors.clear()
            detector = None  # type: ignore[assignment]


_watchdog = _Watchdog()


def _forget_thread() -> None:
    """Start anew in a forked process, which has none of its parent's threads."""
    global _watchdog
    _watchdog = _Watchdog()


os.register_at_fork(after_in_child=_forget_thread)
