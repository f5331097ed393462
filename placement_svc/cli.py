"""The command line interface, `placement-svc`. The commands are in `placement_svc/commands/`.

The module of a command is imported when the command is called: a query takes 0.3 s of processor time, and
would take 1.4 s with the modules of all commands.
"""

import sys
from importlib import import_module
from typing import Any

import click

from placement_svc import __version__
from placement_svc.domain.printable import printable

COMMANDS = {
    "audit": ("audit", "audit_data"),
    "db": ("db", "db"),
    "demo": ("demo", "show_demo"),
    "empty": ("empty", "list_empty_searches"),
    "export": ("transfer", "export_data"),
    "find": ("find", "find_providers"),
    "fits": ("fits", "count_fits"),
    "import": ("transfer", "import_data"),
    "serve": ("serve", "serve"),
    "settings": ("settings", "show_settings"),
    "token": ("token", "token"),
    "top": ("top", "rank"),
    "tree": ("tree", "show_tree"),
    "who": ("who", "list_consumers"),
    "why": ("why", "explain_request"),
}
"""The module in `placement_svc.commands` and the name of each command."""

EXPECTED_ERRORS = (
    ("alembic.util", "CommandError"),
    ("placement_svc.client.service_client", "ClientError"),
    ("placement_svc.config", "SettingsError"),
    ("placement_svc.demo.service", "DemoError"),
    ("placement_svc.domain.errors", "PlacementError"),
    ("placement_svc.domain.errors", "SetupError"),
    ("placement_svc.import_export.files", "TransferError"),
    ("placement_svc.provisioning.errors", "EmbeddedError"),
    ("placement_svc.server.serve", "ServerError"),
)
"""The modules and names of errors that are reported by their message, without a traceback."""


class _Commands(click.Group):
    """A group that imports its commands when they are called, and reports their errors.

    An expected error is one line on standard error, with exit status 1.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"placement_svc.commands.{module}"), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if not isinstance(error, _expected_errors()):
                raise
            # A message may quote a file or another service.
            lines = map(printable, str(error).split("\n"))
            raise click.ClickException("\n".join(lines)) from error


def _expected_errors() -> tuple[type[Exception], ...]:
    """Return the expected errors; one whose module is not imported cannot have been raised."""
    imported = ((sys.modules[module], name) for module, name in EXPECTED_ERRORS if module in sys.modules)
    return tuple(getattr(module, name) for module, name in imported)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="placement-svc", message="%(prog)s %(version)s")
def main() -> None:
    """Run and query Placement. `placement-svc settings` lists its settings."""


if __name__ == "__main__":
    sys.exit(main())
