"""The database that a command works on."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from sqlalchemy import Engine

from placement_svc import config
from placement_svc.db import schema
from placement_svc.db.connections.connection_check import check_connection
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.connections.interrupts import interruptible
from placement_svc.domain.errors import Unavailable
from placement_svc.import_export import transfer
from placement_svc.provisioning.database import database_url
from placement_svc.provisioning.signals import stopped_by_signals


@contextmanager
def opened_engine(*, create: bool = False) -> Iterator[Engine]:
    """Yield an engine for the configured database, which may be the embedded one.

    With `create`, an embedded database that does not exist is created. Raises `EmbeddedError` or
    `Unavailable` with what to correct if there is no database, or if it cannot be reached, and
    `KeyboardInterrupt` at a signal that stops the command.
    """
    with stopped_by_signals(), database_url(config.from_environ(), create=create) as url:
        # An import or a migration may take longer than the statement timeout of requests.
        engine = connect(url, statement_timeout=0)
        try:
            with interruptible(engine):
                check_connection(engine)
                yield engine
        finally:
            engine.dispose()


@contextmanager
def opened_database(*, create: bool = False) -> Iterator[Database]:
    """Yield the configured database; like `serve`, upgrade the schema of the embedded one first.

    `create` and the errors are those of `opened_engine`.
    """
    with opened_engine(create=create) as engine:
        if config.from_environ().database_url is None:
            schema.upgrade(engine)
        yield Database(engine)


def vacuum(database: Database) -> None:
    """Vacuum the tables; the data is complete even if this fails."""
    try:
        transfer.vacuum(database)
    except Unavailable as error:
        click.echo(
            f"The tables are not vacuumed: {error} Searches take longer until autovacuum has run.", err=True
        )
