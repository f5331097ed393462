"""Fixtures: one PostgreSQL server per session, one database per worker, emptied for each test."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from hypothesis import settings
from sqlalchemy import Engine, create_engine, make_url, select, text
from werkzeug.serving import make_server
from werkzeug.test import TestResponse

from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.db import imports, schema
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.search import name_lookup
from placement_svc.db.tables import FIRST_CUSTOM_ID, metadata, resource_providers
from placement_svc.provisioning import embedded
from tests.support.cloud import Cloud, import_records, load
from tests.support.postgres_proxy import PostgresProxy
from tests.support.servers import run_in_thread

DATA_DIR = "TEST_DATA_DIR_OF_PLACEMENT"

DEEP = "deep"
"""The Hypothesis profile in which tests draw `DEEP_FACTOR` times as many examples."""

DEEP_FACTOR = 30

FEW = "few"
"""The Hypothesis profile in which tests draw `1 / FEW_DIVISOR` of the examples, to measure coverage."""

FEW_DIVISOR = 5

LARGE_CLOUD = 1000
"""The number of providers from which a database is emptied by TRUNCATE."""

IMPORTED_CLOUD = 30
"""The number of providers from which a cloud is imported: a request for each takes longer."""

STANDARD = ("traits", "resource_classes")
"""The tables that also have rows which the service creates."""

settings.register_profile(DEEP)
settings.register_profile(FEW)

ADMIN = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
"""The headers of a request as the user admin, at the newest microversion."""

Api = Callable[..., TestResponse]
NewApp = Callable[..., Flask]
LoadCloud = Callable[[Cloud], None]


def examples(usual: int, deep: int | None = None) -> int:
    """Return how many examples a test draws: `usual`, but fewer or more in the profiles `FEW` and `DEEP`.

    In the latter it draws `deep`, if given.
    """
    profile = settings.get_current_profile_name()
    if profile == FEW:
        return max(1, usual // FEW_DIVISOR)
    if profile != DEEP:
        return usual
    return usual * DEEP_FACTOR if deep is None else deep


def pytest_configure(config: pytest.Config) -> None:
    """Create one data directory before the workers of pytest-xdist start, because they share the server."""
    if DATA_DIR not in os.environ:
        os.environ[DATA_DIR] = tempfile.mkdtemp(prefix="placement-tests-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(DATA_DIR)))


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Remove the log handlers that a command run in this process adds, before their streams are closed."""
    root, service = logging.getLogger(), logging.getLogger("placement_svc")
    handlers, levels = list(root.handlers), (root.level, service.level)
    yield
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
    root.setLevel(levels[0])
    service.setLevel(levels[1])
    logging.captureWarnings(False)


@pytest.fixture(scope="module")
def passable_dir() -> Iterator[Path]:
    """A directory that any user may enter, which PostgreSQL needs if root runs the tests."""
    path = Path(tempfile.mkdtemp(prefix="placement-tests-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The URL of a PostgreSQL server whose user may create databases.

    It is the server of `PLACEMENT_DATABASE_URL` if that is set, else the embedded one.
    """
    named = os.environ.get("PLACEMENT_DATABASE_URL")
    if named:
        yield named
        return
    with embedded.start(Path(os.environ[DATA_DIR])) as running:
        yield running.url


@pytest.fixture(scope="session")
def new_database(server_url: str) -> Iterator[Callable[[], str]]:
    """A function that creates an empty database and returns its URL; the session drops it at its end."""
    admin = create_engine(server_url, isolation_level="AUTOCOMMIT")
    created: list[str] = []

    def create() -> str:
        name = f"placement_test_{uuid4().hex}"
        with admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        created.append(name)
        return make_url(server_url).set(database=name).render_as_string(hide_password=False)

    yield create
    with admin.connect() as connection:
        for name in created:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture(scope="session")
def database_url(new_database: Callable[[], str]) -> str:
    """The URL of this worker's database, with the schema."""
    url = new_database()
    engine = create_engine(url)
    schema.upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture(scope="session")
def engine(database_url: str) -> Iterator[Engine]:
    """An engine of this worker's database."""
    engine = connect(database_url)
    yield engine
    engine.dispose()


def store_empty_answers(app: Flask) -> None:
    """Store the searches without candidates that wait for it, which would disturb the next test."""
    if recorder := app.extensions.get("empty_answers"):
        recorder._store()


@contextmanager
def application(settings: Settings) -> Iterator[Flask]:
    """Create an application, and close its connections at the end of the block."""
    app = create_app(settings)
    yield app
    store_empty_answers(app)
    app.extensions["database"].engine.dispose()


@pytest.fixture(scope="session")
def shared_app(database_url: str) -> Iterator[Flask]:
    """The application on this worker's database, which may contain data."""
    with application(Settings(database_url=database_url, pool_size=20)) as app:
        yield app


@pytest.fixture
def new_app(database_url: str) -> Iterator[NewApp]:
    """A function that creates an application with settings, by default on this worker's database."""
    with ExitStack() as stack:

        def new_app(**settings: Any) -> Flask:
            settings = {"database_url": database_url} | settings
            return stack.enter_context(application(Settings(**settings)))

        yield new_app


@pytest.fixture
def postgres_proxy(database_url: str) -> Iterator[PostgresProxy]:
    """A proxy to this worker's database."""
    with PostgresProxy(database_url) as proxy:
        yield proxy


def empty(engine: Engine) -> None:
    """Delete everything but the standard traits and resource classes.

    A large cloud is truncated: deleting its providers looks up each in the dead rows of the tables that refer
    to them. TRUNCATE takes longer for a small one.
    """
    with engine.begin() as connection:
        if len(connection.execute(select(resource_providers.c.id).limit(LARGE_CLOUD)).all()) == LARGE_CLOUD:
            truncated = ", ".join(
                table.name for table in metadata.sorted_tables if table.name not in STANDARD
            )
            connection.execute(text(f"TRUNCATE {truncated}"))
        for table in reversed(metadata.sorted_tables):
            rows = table.delete()
            if table.name in STANDARD:
                rows = rows.where(table.c.id >= FIRST_CUSTOM_ID)
            connection.execute(rows)


@pytest.fixture
def clean_database(engine: Engine) -> Callable[[], None]:
    """A function that empties the database; the fixture has already emptied it once."""
    empty(engine)
    return lambda: empty(engine)


@pytest.fixture
def app(shared_app: Flask, clean_database: Callable[[], None]) -> Iterator[Flask]:
    """The application on an empty database."""
    yield shared_app
    store_empty_answers(shared_app)


@pytest.fixture
def database(app: Flask) -> Database:
    """The database of the application."""
    return app.extensions["database"]  # type: ignore[no-any-return]


@pytest.fixture
def api(app: Flask) -> Api:
    """A function that calls the API as the user admin, by default at the newest microversion."""

    def call(
        method: str,
        path: str,
        json: Any = None,
        version: str = "1.39",
        headers: dict[str, str] | None = None,
    ) -> TestResponse:
        sent = ADMIN | {"OpenStack-API-Version": f"placement {version}"} | (headers or {})
        return app.test_client().open(path, method=method, json=json, headers=sent)

    return call


@pytest.fixture
def no_kept_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count what a request names anew for each request.

    A test that counts statements and changes the cloud in between needs this: within a second, counts of the
    cloud before are found to be outdated by a statement of their own.
    """
    monkeypatch.setattr(name_lookup, "COUNT_SECONDS", 0)


@pytest.fixture
def load_cloud(app: Flask, api: Api) -> LoadCloud:
    """A function that creates a cloud: a small one through the API, a large one by an import."""

    def request(method: str, path: str, json: Any = None, headers: Any = None) -> tuple[int, Any]:
        response = api(method, path, json, headers=headers)
        return response.status_code, response.json

    def load_cloud(cloud: Cloud) -> None:
        if len(cloud.providers) < IMPORTED_CLOUD:
            load(cloud, request)
        else:
            imports.load(
                app.extensions["database"], enumerate(import_records(cloud)), allow_overcommitted=True
            )

    return load_cloud


@pytest.fixture
def call(api: Api) -> Callable[..., Any]:
    """A function that sends a request that must succeed, and returns the JSON body of the response."""

    def call(method: str, path: str, json: Any = None, **options: Any) -> Any:
        response = api(method, path, json, **options)
        assert response.status_code < 300, (method, path, response.get_data())
        return response.get_json(silent=True)

    return call


@contextmanager
def served(app: Flask) -> Iterator[str]:
    """Serve an application in a thread; yield its URL."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    with run_in_thread(server):
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def live(app: Flask) -> Iterator[str]:
    """The URL of a running server on an empty database."""
    with served(app) as url:
        yield url
