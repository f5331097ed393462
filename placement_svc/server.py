"""Running the application: its database, and gunicorn in front of it."""

import gc
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication

from placement_svc import embedded
from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.engine import connect
from placement_svc.http.request_id import RequestIdFilter

LOG_FORMAT = "%(asctime)s %(levelname)s [%(request_id)s %(global_request_id)s] %(name)s: %(message)s"

COLLECT_EVERY = 50_000
"""Objects made before the garbage collector looks at the youngest ones."""

LONGEST_REQUEST_LINE = 8190
"""Bytes; a candidates request with many groups is long."""


@contextmanager
def database_url(settings: Settings) -> Iterator[str]:
    """Give the URL of the database that `settings` name, running the embedded one if they name none."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    with embedded.start(settings.data_dir) as running:
        yield running.url


def with_database(settings: Settings) -> Settings:
    """Return `settings` with a database: where none is named, the embedded one, its schema up to date.

    It is stopped when the interpreter exits.
    """
    if settings.database_url is not None:
        return settings
    url = embedded.start(settings.data_dir).url
    upgrade(url)
    return replace(settings, database_url=url)


def upgrade(url: str) -> None:
    """Bring the schema of a database up to date."""
    engine = connect(url)
    schema.upgrade(engine)
    engine.dispose()


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """Gunicorn, told what to do by arguments instead of a file and a command line."""

    def __init__(self, load: Callable[[], Flask], options: dict[str, Any]) -> None:
        self.load_app = load
        self.options = options
        super().__init__()

    def load_config(self) -> None:
        for name, value in self.options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return self.load_app()


def _prepare_worker(worker: Any) -> None:
    """Let a worker ignore Ctrl-C, which a terminal sends to all: the master tells it what to do.

    What it has loaded stays for good, so the garbage collector need not look at it again and again.
    Nor need it look every few hundred objects: an answer is made of very many, and none in a cycle.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)


def log_to_stderr() -> None:
    """Write what this service logs to standard error, each line with the ids of its request."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    handler.addFilter(RequestIdFilter())
    logger = logging.getLogger("placement_svc")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def serve(load: Callable[[], Flask], host: str, port: int, workers: int, threads: int) -> None:
    """Serve the application that each worker loads, until this process is told to stop."""
    address = f"[{host}]" if ":" in host else host
    options = {
        "bind": f"{address}:{port}",
        "workers": workers,
        "threads": threads,
        "worker_class": "gthread",
        "limit_request_line": LONGEST_REQUEST_LINE,
        "control_socket_disable": True,
        # Which headers of a proxy are believed is a setting of the application.
        "forwarded_allow_ips": "",
        "post_worker_init": _prepare_worker,
    }
    log_to_stderr()
    _Gunicorn(load, options).run()
