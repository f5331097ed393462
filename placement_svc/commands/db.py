"""The commands `db`: show or change the schema revision."""

import click

from placement_svc.commands.database import opened_engine
from placement_svc.db import schema
from placement_svc.db.engine import redact_url


@click.group()
def db() -> None:
    """Show or change the database schema revision."""


@db.command()
@click.argument("revision", default="head")
@click.option(
    "--lock-timeout",
    default=schema.LOCK_TIMEOUT,
    show_default=True,
    type=click.IntRange(1),
    help="Seconds to wait for a table lock. Requests queue behind the waiting migration.",
)
@click.option(
    "--statement-timeout",
    default=schema.STATEMENT_TIMEOUT,
    show_default=True,
    type=click.IntRange(1),
    help="Seconds that a single statement may run.",
)
def upgrade(revision: str, lock_timeout: int, statement_timeout: int) -> None:
    """Upgrade the schema to REVISION, by default to the newest one.

    All migrations run in one transaction. A concurrent `db upgrade` waits for this one. A schema that is
    newer than this version of placement-svc is left unchanged.
    """
    with opened_engine() as engine:
        schema.upgrade(engine, revision, lock_timeout=lock_timeout, statement_timeout=statement_timeout)
        reached = schema.current(engine)
        newer = f", which is newer than {schema.newest()}" if schema.is_newer(reached) else ""
        click.echo(f"{redact_url(engine.url)} is at revision {reached}{newer}")


@db.command()
@click.argument("revision")
def downgrade(revision: str) -> None:
    """Downgrade the schema to REVISION.

    Data that only the newer schema can store is lost. `base` drops all tables and all data.
    """
    with opened_engine() as engine:
        schema.downgrade(engine, revision)
        click.echo(f"{redact_url(engine.url)} is at revision {schema.current(engine) or 'base'}")


@db.command()
def current() -> None:
    """Show the schema's revision and the newest revision."""
    with opened_engine() as engine:
        click.echo(
            f"{redact_url(engine.url)} is at revision {schema.current(engine) or 'base'} of {schema.newest()}"
        )
