"""Running the application: its database, and gunicorn in front of it."""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.http import message

from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.engine import connect, redact_url
from placement_svc.domain.errors import Unavailable
from placement_svc.http import probes
from placement_svc.observability import metrics
from placement_svc.provisioning.database import with_database
from placement_svc.server import logs
from placement_svc.server.worker import SLOW_CLIENTS, Worker

log = logging.getLogger(__name__)

COLLECT_EVERY = 50_000
"""Objects made before the garbage collector looks at the youngest ones."""

LONGEST_REQUEST_LINE = 64 * 1024
"""Bytes; a candidates request with many groups is long."""


BACKLOG = 2048
"""Connections that may wait to be accepted."""

GRACE = 30
"""Seconds that requests in flight have when the service stops."""


class ServerError(Exception):
    """The service cannot be started; the message says why."""


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """Gunicorn, told what to do by arguments instead of a file and a command line."""

    def __init__(
        self, load: Callable[[], Flask], options: dict[str, Any], settings: Settings, turns: int
    ) -> None:
        self.load_app = load
        self.options = options
        self.settings = settings
        self.turns = turns
        super().__init__()

    def load_config(self) -> None:
        for name, value in self.options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return self.load_app()


def _forget_worker(_master: Any, worker: Any) -> None:
    metrics.forget(worker.pid)


def _prepare_worker(worker: Any) -> None:
    """Let a worker ignore Ctrl-C, which a terminal sends to all: the master tells it what to do.

    What it has loaded stays for good, so the garbage collector need not look at it again and again.
    Nor need it look every few hundred objects: an answer is made of very many, and none in a cycle.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Give a socket that listens; raises `ServerError` at once if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=family == socket.AF_INET6
        )
    except OSError as error:
        raise ServerError(
            f"The service cannot listen on {host}:{port} ({os.strerror(error.errno or 0)}):"
            " name another address with --host or another port with --port"
        ) from None
    with listener:
        yield listener


def report(settings: Settings, url: str, workers: int, threads: int) -> dict[str, str]:
    """Return what a service that starts says of itself, by name."""
    assert settings.database_url is not None
    return {
        "version": version("placement-svc"),
        "url": url,
        "database": redact_url(settings.database_url),
        "schema": _revision(settings.database_url),
        "auth": settings.auth,
        "policy": settings.policy_profile,
        "workers": f"{workers} of {threads} threads",
        "metrics": f"{url}{probes.METRICS}" if settings.metrics else "off",
    }


def _revision(database_url: str) -> str:
    engine = connect(database_url)
    try:
        found = schema.current(engine)
        problem, revision = schema.problem(found), found or "base"
    except Unavailable as error:
        problem, revision = str(error), "unknown"
    finally:
        engine.dispose()
    if problem:
        log.warning("%s Until then requests and %s are answered with 503.", problem, probes.READY)
    return revision


def say(facts: Mapping[str, str], settings: Settings) -> None:
    """Write what `report` returned to standard error, in the form that `settings` want of the log."""
    if logs.format_of(settings) == "json":
        log.info("start", extra=dict(facts))
    else:
        lines = [f"  {name:<10}{value}" for name, value in facts.items()]
        print("placement-svc", *lines, sep="\n", file=sys.stderr, flush=True)


def serve(
    load: Callable[[Settings], Flask], settings: Settings, host: str, port: int, workers: int, threads: int
) -> None:
    """Serve the application that each worker loads, until this process is told to stop.

    Raises `ServerError` if the port is taken.
    """
    logs.configure(settings)
    # Gunicorn's own bound is 8190, and no setting raises it.
    message.MAX_REQUEST_LINE = LONGEST_REQUEST_LINE
    with listening(host, port) as listener:
        # Until gunicorn sees to it: killed, this process would leave what it makes from here on.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        with metrics.shared():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit())
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            settings = with_database(settings)
            address = f"[{host}]" if ":" in host else host
            say(report(settings, f"http://{address}:{port}", workers, threads), settings)
            options = {
                # Gunicorn closes its listeners when it stops: no other may stay open.
                "bind": f"fd://{listener.detach()}",
                "workers": workers,
                "threads": threads + SLOW_CLIENTS,
                "worker_class": Worker,
                "logger_class": logs.GunicornLogger,
                "loglevel": settings.log_level,
                "limit_request_line": LONGEST_REQUEST_LINE,
                "graceful_timeout": int(settings.drain) + GRACE,
                "control_socket_disable": True,
                # Which headers of a proxy are believed is a setting of the application.
                "forwarded_allow_ips": "",
                "post_worker_init": _prepare_worker,
                "child_exit": _forget_worker,
            }
            _Gunicorn(lambda: load(settings), options, settings, threads).run()
