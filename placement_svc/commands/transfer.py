"""The commands `export` and `import`."""

import click

from placement_svc import standard_output
from placement_svc.commands.database import opened_database, vacuum
from placement_svc.domain.records import ImportResult
from placement_svc.domain.wording import counted
from placement_svc.import_export import transfer
from placement_svc.import_export.files import check_input
from placement_svc.import_export.placement_client import PlacementClient


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export_data(file: str, force: bool) -> None:
    """Export all data to FILE, one JSON record per line.

    A FILE of - is standard output. A FILE whose name ends in .gz is compressed. Only its owner can read FILE.
    """
    with opened_database() as database:
        exported = transfer.export_file(database, file, force=force)
    click.echo(f"Exported {counted(exported, 'record')}", err=True)


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@click.option("--from", "url", help="URL of a Placement service to import from.")
@click.option("--token", envvar="OS_TOKEN", show_envvar=True, help="Token for that service.")
@click.option(
    "--allow-overcommitted",
    is_flag=True,
    help="Accept allocations that exceed the capacity or violate the units of their inventory.",
)
@click.option("--partial", is_flag=True, help="Accept a FILE that is incomplete.")
@click.option("--dry-run", is_flag=True, help="Check all records, but change nothing.")
def import_data(
    file: str | None,
    url: str | None,
    token: str | None,
    allow_overcommitted: bool,
    partial: bool,
    dry_run: bool,
) -> None:
    """Import data from FILE or another Placement service.

    The import adds all records to the database, or none if any record is invalid. FILE has the format that
    `placement-svc export` writes, and may be compressed. A FILE of - is standard input.
    """
    if (file is None) == (url is None):
        raise click.UsageError("Name either a FILE or a service (--from).")
    if partial and url is not None:
        raise click.UsageError("Omit --partial: it accepts an incomplete FILE, not a service (--from).")
    if url is not None and not token:
        raise click.UsageError("A service needs a token: give one by --token or OS_TOKEN.")
    if file is not None:
        check_input(file)
    # A service that cannot be reached, or refuses the token, is an error before a database is created.
    client = None if url is None else PlacementClient(url, str(token))
    with opened_database(create=True) as database:
        if client is not None:
            imported = transfer.import_service(database, client, dry_run=dry_run)
        else:
            imported = transfer.import_file(
                database,
                str(file),
                allow_overcommitted=allow_overcommitted,
                partial=partial,
                dry_run=dry_run,
            )
        for problem in imported.overcommitted:
            click.echo(f"Overcommitted: {problem.message}", err=True)
        added = _added(imported)
        if dry_run:
            with standard_output.reported("Nothing is changed."):
                click.echo(f"Nothing is changed. An import would add {added}")
            return
        try:
            with standard_output.reported("The data is imported."):
                click.echo(f"Imported {added}")
        finally:
            vacuum(database)


def _added(imported: ImportResult) -> str:
    """Return what an import has added, such as "2 resource providers, 1 consumer and 1 custom trait"."""
    always = [
        counted(imported.providers, "resource provider"),
        counted(imported.consumers, "consumer"),
    ]
    others = [
        (imported.placement_groups, "placement group", "placement groups"),
        (imported.traits, "custom trait", "custom traits"),
        (imported.resource_classes, "custom resource class", "custom resource classes"),
    ]
    *firsts, last = [*always, *(counted(*other) for other in others if other[0])]
    return f"{', '.join(firsts)} and {last}"
