"""One PostgreSQL for the session, one database for each worker, emptied for each test that uses it."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from hypothesis import settings
from sqlalchemy import Engine, create_engine, make_url, text
from werkzeug.serving import make_server
from werkzeug.test import TestResponse

from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.engine import Database, connect
from placement_svc.db.tables import FIRST_CUSTOM_ID, metadata
from placement_svc.provisioning import embedded
from tests.support.cloud import Cloud, load
from tests.support.postgres_proxy import PostgresProxy

DATA_DIR = "TEST_DATA_DIR_OF_PLACEMENT"

DEEP = "deep"
"""The Hypothesis profile in which tests draw `DEEPER` times as many examples."""

DEEPER = 30

settings.register_profile(DEEP)

ADMIN = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
"""The headers of a request as the user admin, at the newest microversion."""

Api = Callable[..., TestResponse]
NewApp = Callable[..., Flask]
LoadCloud = Callable[[Cloud], None]


def examples(usual: int, deep: int | None = None) -> int:
    """Return how many examples a test draws that usually draws so many; `deep` if it is deep, if given."""
    if settings.get_current_profile_name() != DEEP:
        return usual
    return usual * DEEPER if deep is None else deep


def pytest_configure(config: pytest.Config) -> None:
    """Make one data directory, before the workers of pytest-xdist start: they share the server."""
    if DATA_DIR not in os.environ:
        os.environ[DATA_DIR] = tempfile.mkdtemp(prefix="placement-tests-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(DATA_DIR)))


@pytest.fixture(scope="module")
def passable_dir() -> Iterator[Path]:
    """A directory that any user may pass, as PostgreSQL must if root starts it; pytest's own are root's."""
    path = Path(tempfile.mkdtemp(prefix="placement-tests-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The URL of a PostgreSQL whose user may create databases: the embedded one, unless one is named."""
    named = os.environ.get("PLACEMENT_DATABASE_URL")
    if named:
        yield named
        return
    with embedded.start(Path(os.environ[DATA_DIR])) as running:
        yield running.url


@pytest.fixture(scope="session")
def new_database(server_url: str) -> Iterator[Callable[[], str]]:
    """A function that creates an empty database and returns its URL; all of them are dropped at last."""
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


@contextmanager
def application(settings: Settings) -> Iterator[Flask]:
    """Make an application, whose connections are closed at the end of the block."""
    app = create_app(settings)
    yield app
    app.extensions["database"].engine.dispose()


@pytest.fixture(scope="session")
def shared_app(database_url: str) -> Iterator[Flask]:
    """The application on this worker's database, whatever is in it."""
    with application(Settings(database_url=database_url, pool_size=20)) as app:
        yield app


@pytest.fixture
def new_app(database_url: str) -> Iterator[NewApp]:
    """A function that makes an application with settings, on this worker's database if they name none."""
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
        proxy.shutdown()


def empty(engine: Engine) -> None:
    """Delete everything but the standard traits and resource classes."""
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            rows = table.delete()
            if table.name in ("traits", "resource_classes"):
                rows = rows.where(table.c.id >= FIRST_CUSTOM_ID)
            connection.execute(rows)


@pytest.fixture
def clean_database(engine: Engine) -> Callable[[], None]:
    """A function that empties the database; it has been called once."""
    empty(engine)
    return lambda: empty(engine)


@pytest.fixture
def app(shared_app: Flask, clean_database: Callable[[], None]) -> Flask:
    """The application on an empty database."""
    return shared_app


@pytest.fixture
def database(app: Flask) -> Database:
    """The database of the application."""
    return app.extensions["database"]  # type: ignore[no-any-return]


@pytest.fixture
def api(app: Flask) -> Api:
    """A caller of the API as the user admin, at the newest microversion unless told otherwise."""

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
def load_cloud(api: Api) -> LoadCloud:
    """A function that builds a cloud with the API."""

    def request(method: str, path: str, json: Any = None, headers: Any = None) -> tuple[int, Any]:
        response = api(method, path, json, headers=headers)
        return response.status_code, response.json

    return partial(load, request=request)


@pytest.fixture
def call(api: Api) -> Callable[..., Any]:
    """A caller of the API whose requests must succeed; it returns what the answer says."""

    def call(method: str, path: str, json: Any = None, **options: Any) -> Any:
        answer = api(method, path, json, **options)
        assert answer.status_code < 300, (method, path, answer.get_data())
        return answer.get_json(silent=True)

    return call


@pytest.fixture
def live(app: Flask) -> Iterator[str]:
    """The URL of a live server with nothing in it."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()
