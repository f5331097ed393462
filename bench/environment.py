"""The environment of a measurement: new databases on one PostgreSQL server, and a service for each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.pool import NullPool

from bench.checking import check_clouds
from bench.clouds import Cloud
from bench.loading import add_names, load_ours, load_reference
from bench.services import Server, Service, serve_ours, serve_reference
from placement_svc.provisioning.database import upgrade


@dataclass(frozen=True)
class Environment:
    """Running services that serve the same cloud; `url` is the database URL of this service.

    `reference` is None if only this service is measured.
    """

    url: str
    ours: Server
    reference: Server | None

    @property
    def servers(self) -> list[Server]:
        """The servers, with this service first."""
        return [self.ours, *([self.reference] if self.reference else [])]


@contextmanager
def serve_cloud(server_url: str, cloud: Cloud, reference_python: Path | None) -> Iterator[Environment]:
    """Load a cloud into a new database for each service, and start the services.

    `server_url` is the URL of any database on the PostgreSQL server. The reference is omitted if
    `reference_python` is None. Raises `ServiceError` if a service cannot be started, and `ServicesDiffer` if
    the services do not report the same cloud.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="placement-bench-")))
        url = stack.enter_context(_new_database(server_url))
        upgrade(url)
        ours = stack.enter_context(serve_ours(url, directory))
        _load(ours.service, url, cloud, load_ours)
        reference = None
        if reference_python is not None:
            reference_url = stack.enter_context(_new_database(server_url))
            reference = stack.enter_context(serve_reference(reference_python, reference_url, directory))
            _load(reference.service, reference_url, cloud, load_reference)
            check_clouds(ours.service, reference.service)
        yield Environment(url, ours, reference)


@contextmanager
def _new_database(server_url: str) -> Iterator[str]:
    """Yield the URL of a new database, which is dropped afterwards."""
    name = f"placement_bench_{uuid4().hex}"
    engine = create_engine(server_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)

    def execute(statement: str) -> None:
        with engine.connect() as connection:
            connection.execute(text(statement))

    execute(f"CREATE DATABASE {name}")
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        execute(f"DROP DATABASE {name} WITH (FORCE)")


def _load(service: Service, url: str, cloud: Cloud, load: Callable[[Engine, Cloud], None]) -> None:
    add_names(service, cloud)
    engine = create_engine(url, poolclass=NullPool)
    load(engine, cloud)
