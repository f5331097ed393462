"""Run the application with gunicorn."""

import ctypes
import gc
import logging
import mmap
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.http import message

import placement_svc
from placement_svc.config import Settings
from placement_svc.configuration_files import ConfigurationFiles
from placement_svc.db import revisions
from placement_svc.db.connections.connection_check import check_connection, missing_options
from placement_svc.db.connections.durability import read_durability
from placement_svc.db.connections.engine import connect
from placement_svc.db.connections.urls import each_host, server_name
from placement_svc.db.errors import map_driver_errors
from placement_svc.domain.errors import Unavailable
from placement_svc.domain.limits import MAX_REQUEST_LINE
from placement_svc.http import probes
from placement_svc.observability import metrics
from placement_svc.provisioning.database import database_name, with_database
from placement_svc.provisioning.leftovers import command_directory, record_data_dir, remove_leftovers
from placement_svc.server import logs
from placement_svc.server.worker import BUFFER_THREADS, STOP_SIGNALS, Worker

log = logging.getLogger(__name__)

MALLOC_ARENAS = 2
"""The heaps of a worker from which threads get memory; by default, GNU libc has eight for each core.

Each keeps what large bodies once needed. After bodies of 10 to 16 MiB by 24 clients, a worker had 180 MB
instead of 500 MB.
"""

M_ARENA_MAX = -8
"""The number of this parameter of `mallopt`, from malloc.h."""

COLLECT_EVERY = 50_000
"""Allocations after which the garbage collector examines the youngest objects."""

BACKLOG = 2048
"""Connections that may wait to be accepted."""

GRACEFUL_TIMEOUT = 30
"""Seconds that requests in flight have to finish when the service stops."""


class ServerError(Exception):
    """The service cannot be started; the message gives the reason."""


class _Master(Arbiter):  # type: ignore[misc]
    """Gunicorn's master process, which lets the workers know that the whole service stops."""

    def spawn_worker(self) -> int:
        """Start a worker, and return its process id; stop signals wait until the worker can handle them.

        A new worker has the handlers of the master, which would drop them. The master sends each signal once,
        so it would then wait for this worker until the end of the graceful timeout. `Worker.init_signals`
        unblocks them in the worker.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            return super().spawn_worker()  # type: ignore[no-any-return]
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def wait_for_signals(self, timeout: float = 1.0) -> list[int]:
        """Return the signals that have arrived, those after the first SIGTERM later.

        Gunicorn forgets the others, although a second signal ends the drain.
        """
        signals: list[int] = super().wait_for_signals(timeout)
        if signal.SIGTERM not in signals:
            return signals
        after = signals.index(signal.SIGTERM) + 1
        for later in signals[after:]:
            self.SIG_QUEUE.put_nowait(later)
        return signals[:after]

    def reexec(self) -> None:
        """Ignore SIGUSR2, at which gunicorn would start a second master, which nothing stops."""
        log.warning(
            "SIGUSR2 is ignored: start the new version while this one runs, then stop this one by SIGTERM."
        )

    def manage_workers(self) -> None:
        """Start the workers that are missing; gunicorn calls this once a second and after each signal.

        A worker that starts while a file is invalid inherits the content that the file had before.
        """
        self.app.files.refresh()
        super().manage_workers()

    def reload(self) -> None:
        """Replace the workers, on SIGHUP."""
        self.app.files.reload()
        super().reload()

    def stop(self, graceful: bool = True) -> None:
        """Stop the workers; after a reload or a failure of a worker, in contrast, others replace it."""
        self.app.stopping[0] = 1
        super().stop(graceful)


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """Gunicorn, configured by arguments instead of a file and a command line."""

    def __init__(
        self,
        load: Callable[[], Flask],
        options: dict[str, Any],
        settings: Settings,
        files: ConfigurationFiles,
        concurrency: int,
    ) -> None:
        self.load_app = load
        self.options = options
        self.settings = settings
        self.files = files
        self.concurrency = concurrency
        self.stopping = mmap.mmap(-1, 1)
        super().__init__()

    def load_config(self) -> None:
        for name, value in self.options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return self.load_app()

    def run(self) -> None:
        """Run until the service stops; further signals do not change the exit status of this process."""
        try:
            _Master(self).run()
        finally:
            # Python restores the default handlers while it exits, but keeps signals ignored.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)


def _mark_worker_dead(_master: Any, worker: Any) -> None:
    metrics.mark_worker_dead(worker.pid)


def _prepare_worker(worker: Any) -> None:
    """Make a worker ignore Ctrl-C, limit its heaps, and tune its garbage collector.

    A terminal sends Ctrl-C to all processes; the master stops the workers. The loaded modules are never
    freed, so the collector need not examine them. It also runs less often than by default, because a response
    consists of very many objects, none of them in a cycle.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_malloc_parameter = getattr(ctypes.CDLL(None), "mallopt", None)
    # Other C libraries do not have it.
    if set_malloc_parameter is not None:
        set_malloc_parameter(M_ARENA_MAX, MALLOC_ARENAS)
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a listening socket; raise `ServerError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=family == socket.AF_INET6
        )
    except OSError as error:
        # Failed resolutions have numbers of their own, so `os.strerror` does not know them all.
        reason, _, _ = str(error.strerror).partition(" (while attempting to bind")
        raise ServerError(
            f"The service cannot listen on {host}:{port} ({reason}):"
            " choose another address with --host or another port with --port"
        ) from None
    with listener:
        yield listener


def startup_report(
    settings: Settings, url: str, database: str, *, workers: int, threads: int
) -> dict[str, str]:
    """Return the fields of the report that a starting service prints; no secrets."""
    assert settings.database_url is not None
    revision, commits = _examine(settings.database_url)
    standbys = each_host(settings.read_url) if settings.read_url else ()
    return {
        "version": placement_svc.__version__,
        "url": url,
        "database": database,
        "schema": revision,
        "commits": commits,
        "standbys": ", ".join(map(server_name, standbys)) or "none",
        "auth": settings.auth,
        "policy": settings.policy_profile,
        "workers": f"{workers} of {threads} threads",
        "metrics": f"{url}{probes.METRICS}" if settings.metrics else "off",
    }


def _examine(database_url: str) -> tuple[str, str]:
    """Return the revision of the schema, and how durable commits are; log what is wrong."""
    commits = "unknown"
    engine = connect(database_url)
    try:
        check_connection(engine)
        if missing := missing_options(engine):
            log.warning(
                "The database sessions lack the options %s, as behind a connection pooler that drops them:"
                " run the SQL that `placement-svc db role-settings` prints.",
                ", ".join(missing),
            )
        current = revisions.current(engine)
        problem, revision = revisions.mismatch(current), current or revisions.BASE
        with map_driver_errors(), engine.connect() as connection:
            commits = str(read_durability(connection))
    except Unavailable as error:
        problem, revision = str(error), "unknown"
    finally:
        engine.dispose()
    if problem:
        log.warning("%s Until then, the API and %s respond with 503.", problem, probes.READY)
    return revision, commits


def print_report(report: Mapping[str, str], settings: Settings) -> None:
    """Write a startup report to standard error: as a log record if the log is JSON, else as a list."""
    if logs.format_name(settings) == "json":
        log.info("start", extra=dict(report))
    else:
        lines = [f"  {name:<10}{value}" for name, value in report.items()]
        print("placement-svc", *lines, sep="\n", file=sys.stderr, flush=True)


def _exit_at_sigterm() -> Event:
    """Let SIGTERM exit the process, and ignore further ones; return an event that it sets before."""
    is_stopped = Event()

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        is_stopped.set()
        sys.exit()

    signal.signal(signal.SIGTERM, stop)
    return is_stopped


def _gunicorn_options(settings: Settings, descriptor: int, *, workers: int, threads: int) -> dict[str, Any]:
    """Return the options of gunicorn; `descriptor` is the file descriptor of the listening socket."""
    return {
        "bind": f"fd://{descriptor}",
        "workers": workers,
        "threads": threads + BUFFER_THREADS,
        "worker_class": Worker,
        "logger_class": logs.GunicornLogger,
        "loglevel": settings.log_level,
        "limit_request_line": MAX_REQUEST_LINE,
        # By default, gunicorn uses its C extension if that is installed. What that accepts depends on
        # its version, and it does not make claims measurably faster.
        "http_parser": "python",
        "graceful_timeout": int(settings.drain) + GRACEFUL_TIMEOUT,
        "control_socket_disable": True,
        # The application decides which proxy headers to trust (PLACEMENT_PROXY_HEADERS).
        "forwarded_allow_ips": "",
        "post_worker_init": _prepare_worker,
        "child_exit": _mark_worker_dead,
    }


def serve(
    load: Callable[[Settings], Flask],
    settings: Settings,
    files: ConfigurationFiles,
    *,
    host: str,
    port: int,
    workers: int,
    threads: int,
) -> None:
    """Serve the application that `load` creates in each worker, until SIGTERM or SIGINT.

    The workers inherit `files`, the files that the settings name.

    With the port 0, it listens on a free one. First removes what killed commands have left. Raises
    `ServerError` if the address cannot be used, for example because the port is in use.
    """
    logs.configure(settings)
    remove_leftovers()
    # Gunicorn limits its own setting to 8190 bytes.
    message.MAX_REQUEST_LINE = MAX_REQUEST_LINE
    with listening(host, port) as listener:
        # From here until gunicorn handles SIGTERM, the signal must not kill this process: it would leave
        # behind the directory of the metrics and the embedded PostgreSQL.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        with command_directory("serve") as directory, metrics.multiprocess_dir(directory):
            is_stopped = _exit_at_sigterm()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            if settings.database_url is None:
                record_data_dir(directory, settings.data_dir)
            name = database_name(settings)
            settings = with_database(settings)
            address = f"[{host}]" if ":" in host else host
            url = f"http://{address}:{listener.getsockname()[1]}"
            report = startup_report(settings, url, name, workers=workers, threads=threads)
            if is_stopped.is_set():
                # SQLAlchemy loses the exit if the signal comes while it examines its first connection.
                sys.exit()
            print_report(report, settings)
            # Gunicorn closes the descriptor when it stops; no other one may keep the port open.
            options = _gunicorn_options(settings, listener.detach(), workers=workers, threads=threads)

            def load_in_worker() -> Flask:
                # A cleaner of temporary files may have removed it.
                directory.mkdir(exist_ok=True)
                return load(settings)

            _Gunicorn(load_in_worker, options, settings, files, concurrency=threads).run()
