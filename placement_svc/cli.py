"""The command line interface, `placement-svc`. The commands are in `placement_svc/commands/`."""

import sys
from typing import Any

import click
from alembic.util import CommandError

from placement_svc import __version__
from placement_svc.client.service_client import ClientError
from placement_svc.commands.audit import audit_data
from placement_svc.commands.db import db
from placement_svc.commands.demo import show_demo
from placement_svc.commands.empty import list_empty_searches
from placement_svc.commands.find import find_providers
from placement_svc.commands.fits import count_fits
from placement_svc.commands.serve import serve
from placement_svc.commands.settings import show_settings
from placement_svc.commands.token import token
from placement_svc.commands.top import rank
from placement_svc.commands.transfer import export_data, import_data
from placement_svc.commands.tree import show_tree
from placement_svc.commands.who import list_consumers
from placement_svc.commands.why import explain_request
from placement_svc.config import SettingsError
from placement_svc.demo.service import DemoError
from placement_svc.domain.errors import PlacementError, SetupError
from placement_svc.domain.printable import printable
from placement_svc.import_export.files import TransferError
from placement_svc.provisioning.errors import EmbeddedError
from placement_svc.server.serve import ServerError

EXPECTED_ERRORS = (
    ClientError,
    CommandError,
    DemoError,
    EmbeddedError,
    PlacementError,
    ServerError,
    SettingsError,
    SetupError,
    TransferError,
)
"""Errors that are reported by their message, without a traceback."""


class _Commands(click.Group):
    """A command group that reports an expected error as one line on standard error, with exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED_ERRORS as error:
            # A message may quote a file or another service.
            lines = map(printable, str(error).split("\n"))
            raise click.ClickException("\n".join(lines)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="placement-svc", message="%(prog)s %(version)s")
def main() -> None:
    """Run and query Placement. `placement-svc settings` lists its settings."""


for command in (
    serve,
    show_settings,
    show_demo,
    token,
    db,
    export_data,
    import_data,
    audit_data,
    explain_request,
    count_fits,
    show_tree,
    rank,
    list_consumers,
    find_providers,
    list_empty_searches,
):
    main.add_command(command)


if __name__ == "__main__":
    sys.exit(main())
