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

from sqlalchemy import Engine, event

from placement_svc.db.connections.server_hosts import Server, ServerHosts
from placement_svc.db.connections.sockets import shut_down

CHECK_INTERVAL = 0.25
"""Seconds between two checks of the connections in use."""

SUSPICION_SECONDS = 2.0
"""Seconds after which a connection in use makes the watchdog probe its server."""

PROBE_INTERVAL = 2.0
"""Seconds from a successful probe of a server to the next one."""


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
        self._hosts = ServerHosts()
        for name, listener in (
            ("connect", self._opened),
            ("checkout", self._taken),
            ("checkin", self._returned),
            ("close", self._closed),
            ("do_connect", self._connect),
        ):
            event.listen(engine, name, listener)

    def _connect(self, _dialect: Any, _record: Any, _args: Any, arguments: dict[str, Any]) -> Any:
        _watchdog.watch(self)
        return self._hosts.connect(arguments)

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
            if self._hosts.responds(server) and not self._hosts.is_replaced(server):
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

    def _shut_down(self, server: Server) -> None:
        """End all connections to a server; the thread that uses one gets an error at once."""
        self._hosts.avoid(server)
        with self._lock:
            for driver_connection, session in list(self._sessions.items()):
                if session.server == server:
                    shut_down(driver_connection)


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
