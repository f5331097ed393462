"""The commands `token`: manage the token file."""

from pathlib import Path

import click

from placement_svc import config
from placement_svc.http import token_file


@click.group()
def token() -> None:
    """Manage the tokens of PLACEMENT_AUTH=token.

    The tokens are in the file PLACEMENT_TOKEN_FILE. A running service applies a change to the next request.
    """


def _token_file() -> Path:
    file = config.from_environ().token_file
    if file is None:
        raise config.SettingsError("PLACEMENT_TOKEN_FILE must name the token file")
    return file


@token.command("create")
@click.option("--user", required=True, help="Id of the user that the token authenticates.")
@click.option("--project", required=True, help="Id of the project that the token is for.")
@click.option("--role", "roles", required=True, multiple=True, help="Role of the user; may be repeated.")
def create_token(user: str, project: str, roles: tuple[str, ...]) -> None:
    """Create a token and print it.

    The token is printed only once: the file stores a hash of it.
    """
    click.echo(token_file.add(_token_file(), user, project, roles))


@token.command("list")
def list_tokens() -> None:
    """List id, user, project, roles and creation time of each token."""
    for token_id, record in token_file.read(_token_file()).items():
        columns = (token_id, record.user_id, record.project_id, ",".join(record.roles), record.created_at)
        click.echo("  ".join(columns))


@token.command("revoke")
@click.argument("token_id", metavar="ID")
def revoke_token(token_id: str) -> None:
    """Revoke the token with this ID."""
    token_file.remove(_token_file(), token_id)
