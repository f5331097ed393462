"""The command `settings`."""

import textwrap
from dataclasses import Field, fields
from typing import Any

import click

from placement_svc import config, standard_output

HELP_WIDTH = 80
"""Columns of the text that `placement-svc settings` prints."""


@click.command("settings")
def show_settings() -> None:
    """List all settings with their defaults.

    A setting is an environment variable. It is read once, when a command starts.
    """
    paragraphs = [
        "Environment variables, read once at startup. An empty variable counts as unset.",
        *(_described(field) for field in fields(config.Settings)),
    ]
    with standard_output.reported():
        click.echo("\n\n".join(paragraphs))


def _described(field: Field[Any]) -> str:
    """Return the variable, the meaning and the default of a setting, wrapped and indented."""
    about = textwrap.wrap(field.metadata["about"], HELP_WIDTH - 4, break_on_hyphens=False)
    details = [*about, f"Default: {config.default_text(field)}"]
    return "\n".join([config.variable(field.name), *(f"    {line}" for line in details)])
