"""The commands `export` and `import`."""

import click

from placement_svc.commands.database import opened_database
from placement_svc.import_export import transfer


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def export_data(file: str) -> None:
    """Export all data to FILE, one JSON record per line.

    A FILE of - is standard output. A FILE whose name ends in .gz is compressed.
    """
    with opened_database() as database:
        lines = transfer.export_file(database, file)
    click.echo(f"Exported {lines:,} records", err=True)


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@click.option("--from", "url", help="URL of a Placement service to import from.")
@click.option("--token", envvar="OS_TOKEN", show_envvar=True, help="Token for that service.")
@click.option(
    "--allow-overcommitted",
    is_flag=True,
    help="Accept allocations that exceed the capacity or violate the units of their inventory.",
)
def import_data(file: str | None, url: str | None, token: str | None, allow_overcommitted: bool) -> None:
    """Import data from FILE or another Placement service.

    The import adds all records to the database, or none if any record is invalid. FILE has the format that
    `placement-svc export` writes. A FILE of - is standard input. A FILE whose name ends in .gz is
    decompressed.
    """
    if (file is None) == (url is None):
        raise click.UsageError("Name either a FILE or a service (--from).")
    if url is not None and not token:
        raise click.UsageError("A service needs a token: give one by --token or OS_TOKEN.")
    with opened_database() as database:
        if url is not None:
            imported = transfer.import_service(database, url, str(token))
        else:
            imported = transfer.import_file(database, str(file), allow_overcommitted)
    for problem in imported.overcommitted:
        click.echo(f"Overcommitted: {problem.message}", err=True)
    click.echo(f"Imported {imported.providers:,} resource providers and {imported.consumers:,} consumers")
