"""Where a cloud is measured: new databases on one PostgreSQL, and a service running on each."""

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
class Stage:
    """A cloud that is served: by this service from the database of `url`, perhaps by the reference too."""

    url: str
    ours: Server
    reference: Server | None

    @property
    def servers(self) -> list[Server]:
        """The services, this one first."""
        return [self.ours, *([self.reference] if self.reference else [])]


@contextmanager
def serving(server_url: str, cloud: Cloud, reference_python: Path | None) -> Iterator[Stage]:
    """Load a cloud into new databases, one for each service, and serve it from them.

    `server_url` is the URL of any database of the PostgreSQL server. The reference is left out unless
    its Python is named. Raises `ServiceError` when a service does not run, and
    `Difference` when they do not agree on the cloud.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="placement-bench-")))
        url = stack.enter_context(_database(server_url))
        upgrade(url)
        ours = stack.enter_context(serve_ours(url, directory))
        _load(ours.service, url, cloud, load_ours)
        reference = None
        if reference_python is not None:
            reference_url = stack.enter_context(_database(server_url))
            reference = stack.enter_context(serve_reference(reference_python, reference_url, directory))
            _load(reference.service, reference_url, cloud, load_reference)
            check_clouds(ours.service, reference.service)
        yield Stage(url, ours, reference)


@contextmanager
def _database(server_url: str) -> Iterator[str]:
    """Give the URL of a new database, which is dropped at the end."""
    name = f"placement_bench_{uuid4().hex}"
    engine = create_engine(server_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)

    def run(statement: str) -> None:
        with engine.connect() as connection:
            connection.execute(text(statement))

    run(f"CREATE DATABASE {name}")
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        run(f"DROP DATABASE {name} WITH (FORCE)")


def _load(service: Service, url: str, cloud: Cloud, load: Callable[[Engine, Cloud], None]) -> None:
    add_names(service, cloud)
    engine = create_engine(url, poolclass=NullPool)
    load(engine, cloud)
