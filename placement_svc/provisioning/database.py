"""Choose the database: the one that the settings name, or the embedded PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from placement_svc.db.connections.urls import redact_url
from placement_svc.provisioning import embedded


def database_name(settings: Settings) -> str:
    """Return what messages call the configured database; no secrets."""
    if settings.database_url is None:
        return f"the embedded database in {settings.data_dir}"
    return redact_url(settings.database_url)


@contextmanager
def database_url(settings: Settings, *, create: bool) -> Iterator[str]:
    """Yield the URL of the configured database; without one, run the embedded PostgreSQL meanwhile.

    An embedded database that does not exist is created, or raises `EmbeddedError` without `create`.
    """
    if settings.database_url is not None:
        yield settings.database_url
        return
    with embedded.start(settings.data_dir, create=create) as running:
        yield running.url


def with_database(settings: Settings) -> Settings:
    """Return `settings` with a database URL.

    If they name no database, the embedded PostgreSQL is started and its schema is upgraded. It stops when the
    interpreter exits.
    """
    if settings.database_url is not None:
        return settings
    url = embedded.start(settings.data_dir).url
    upgrade(url)
    return replace(settings, database_url=url)


def upgrade(url: str) -> None:
    """Upgrade the schema of a database to the newest revision."""
    engine = connect(url)
    try:
        schema.upgrade(engine)
    finally:
        engine.dispose()
