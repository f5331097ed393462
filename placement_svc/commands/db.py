"""The commands `db`: upgrade, back up and restore the database."""

import sys

import click

from placement_svc import config, standard_output
from placement_svc.commands.database import opened_engine, vacuum
from placement_svc.db import revisions, schema
from placement_svc.db.connections import sessions
from placement_svc.db.connections.engine import Database
from placement_svc.db.connections.session_options import role_statements, session_options
from placement_svc.db.connections.urls import parse_url
from placement_svc.import_export import dump as dump_file
from placement_svc.import_export.files import STREAM, check_input
from placement_svc.provisioning.database import database_name


def _name() -> str:
    return database_name(config.from_environ())


@click.group()
def db() -> None:
    """Upgrade, back up and restore the database."""


@db.command()
@click.argument("revision", default="head")
@click.option(
    "--lock-timeout",
    default=schema.LOCK_TIMEOUT,
    show_default=True,
    type=click.IntRange(1, config.MAX_SECONDS),
    help="Seconds to wait for a table lock. Requests queue behind the waiting migration.",
)
@click.option(
    "--statement-timeout",
    default=schema.STATEMENT_TIMEOUT,
    show_default=True,
    type=click.IntRange(1, config.MAX_SECONDS),
    help="Seconds that a single statement may run.",
)
def upgrade(revision: str, lock_timeout: int, statement_timeout: int) -> None:
    """Upgrade the schema to REVISION, or to the newest one.

    All migrations run in one transaction. A concurrent `db upgrade` waits for this one. A schema that is
    newer than this version of placement-svc is left unchanged.
    """
    with opened_engine(create=True) as engine:
        schema.upgrade(engine, revision, lock_timeout=lock_timeout, statement_timeout=statement_timeout)
        reached = revisions.current(engine)
        newer = f", which is newer than {revisions.newest()}" if revisions.is_newer(reached) else ""
        with standard_output.reported("The schema is upgraded."):
            click.echo(f"{_name()} is at revision {reached}{newer}")


@db.command()
@click.argument("revision")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Downgrade even if services are connected.")
def downgrade(revision: str, yes: bool, force: bool) -> None:
    """Downgrade the schema to REVISION.

    Data that only the newer schema can store is lost. `base` drops all tables and all data. Stop all services
    first.
    """
    # The caller may have closed standard input.
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise click.UsageError("Confirm the downgrade with --yes: there is no terminal to ask on.")
    with opened_engine() as engine:
        if not force:
            sessions.check_no_others(engine, _name())
        before = revisions.current(engine)
        revisions.check_downgrade(before, revision)
        if not yes:
            _confirm_downgrade(before, revision)
        schema.downgrade(engine, revision)
        reached = revisions.current(engine) or revisions.BASE
        with standard_output.reported("The schema is downgraded."):
            click.echo(f"{_name()} is at revision {reached}")


def _confirm_downgrade(current: str | None, revision: str) -> None:
    """Ask on the terminal; raise `click.Abort` unless the answer is yes."""
    loss = "drops all tables and all data" if revision == revisions.BASE else "may lose data"
    question = f"Downgrade {_name()} from {current or revisions.BASE} to {revision}? This {loss}."
    click.confirm(question, abort=True, err=True)


@db.command()
def current() -> None:
    """Show the schema's revision and the newest revision."""
    with opened_engine() as engine:
        revision = revisions.current(engine) or revisions.BASE
        with standard_output.reported():
            click.echo(f"{_name()} is at revision {revision} of {revisions.newest()}")


@db.command()
def role_settings() -> None:
    """Print the SQL that sets the session options of the role.

    It is necessary behind a connection pooler, such as PgBouncer, that drops the options of a connection.
    """
    settings = config.from_environ()
    if settings.database_url is None:
        raise click.UsageError("The embedded database has no connection pooler: set PLACEMENT_DATABASE_URL.")
    options = session_options(settings.lock_timeout, settings.statement_timeout)
    with standard_output.reported():
        for statement in role_statements(parse_url(settings.database_url), options):
            click.echo(statement)


@db.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def dump(file: str, force: bool) -> None:
    """Back up the database to FILE, in one snapshot, by pg_dump.

    Services can run meanwhile. A FILE of - is standard output. Only its owner can read FILE.
    """
    with opened_engine() as engine:
        dump_file.dump(engine, file, force=force)
        click.echo(f"Dumped {_name()}", err=True)


@db.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Replace all data, even if services are connected.")
def restore(file: str, force: bool) -> None:
    """Restore a FILE of `db dump` to an empty database.

    It is read by pg_restore. All of FILE is restored, or nothing. Stop all services first.
    """
    if file == STREAM:
        raise click.UsageError("FILE must be a file: a dump cannot be read from standard input.")
    check_input(file)
    with opened_engine(create=True) as engine:
        revision = dump_file.restore(engine, file, force=force)
        try:
            with standard_output.reported("The database is restored."):
                click.echo(f"Restored {_name()} at revision {revision}")
        finally:
            if problem := revisions.mismatch(revision):
                click.echo(problem, err=True)
            else:
                vacuum(Database(engine))
