"""The commands `token`: manage the token file."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from placement_svc import config, standard_output
from placement_svc.commands.listing import Listing
from placement_svc.commands.report import Format, Report
from placement_svc.http import policy, token_file
from placement_svc.http.token_file import Token

_HEADINGS = ("Id", "User", "Project", "Roles", "Created", "Expires")

_PERIOD = re.compile(r"([0-9]+)([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _Name(click.ParamType[str]):
    """A text that is not blank and can be printed."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail with the reason."""
        text = str(value)
        if not text.strip():
            self.fail("It must not be blank.", param, ctx)
        if not text.isprintable():
            self.fail("It must not contain control characters.", param, ctx)
        return text


class _Expiry(click.ParamType[datetime]):
    """A point in time in the future: a period from now, or a date."""

    name = "period|date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the time in UTC, or fail with the reason."""
        now = datetime.now(UTC).replace(microsecond=0)
        try:
            if period := _PERIOD.fullmatch(value):
                expires_at = now + timedelta(**{_UNITS[period[2]]: int(period[1])})
            else:
                expires_at = datetime.fromisoformat(value)
                if expires_at.tzinfo is None:
                    expires_at = expires_at.replace(tzinfo=UTC)
                expires_at = expires_at.astimezone(UTC)
        except OverflowError:
            self.fail(f"{value!r} is after the year 9999.", param, ctx)
        except ValueError:
            self.fail(f"{value!r} is neither a period such as 90d nor a date such as 2030-12-31.", param, ctx)
        if expires_at <= now:
            self.fail(f"{value!r} is not in the future.", param, ctx)
        return expires_at


@click.group()
def token() -> None:
    """Manage the tokens of PLACEMENT_AUTH=token.

    The tokens are in the file PLACEMENT_TOKEN_FILE. A running service applies a change to the next request.
    """


def _token_file(settings: config.Settings) -> Path:
    if settings.token_file is None:
        raise config.SettingsError("PLACEMENT_TOKEN_FILE must name the token file")
    return settings.token_file


@token.command("create")
@click.option("--user", required=True, type=_Name(), help="Id of the user that the token authenticates.")
@click.option("--project", required=True, type=_Name(), help="Id of the project that the token is for.")
@click.option(
    "--role", "roles", required=True, multiple=True, type=_Name(), help="Role of the user; may be repeated."
)
@click.option(
    "--expires", type=_Expiry(), help="When the token expires: in 90d (m, h, d or w), or on a date (UTC)."
)
def create_token(user: str, project: str, roles: tuple[str, ...], expires: datetime | None) -> None:
    """Create a token and print it.

    The token is printed only once: the file stores a hash of it.
    """
    settings = config.from_environ()
    file = _token_file(settings)
    known = policy.named_roles(policy.load(settings.policy_profile, settings.policy_file))
    for role in roles:
        if role.strip().lower() not in known:
            click.echo(f"Warning: No policy rule names the role {role}", err=True)
    created = token_file.add(file, user, project, roles, expires)
    try:
        standard_output.check_open()
        with standard_output.flushed():
            click.echo(created)
    except OSError as error:
        token_file.remove(file, created.partition(".")[0])
        raise standard_output.OutputError(
            f"The token cannot be printed: {error.strerror}. It is removed again."
        ) from error


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the tokens as JSON.")
def list_tokens(as_json: bool) -> None:
    """List the tokens without their secrets."""
    tokens = token_file.read(_token_file(config.from_environ()))
    documents = [_document(token_id, record) for token_id, record in tokens.items()]
    listing = Listing(_HEADINGS, [_row(token_id, record) for token_id, record in tokens.items()])
    with standard_output.reported():
        Report(documents, listing, [listing]).write(Format.JSON if as_json else None)


def _row(token_id: str, record: Token) -> list[str]:
    expires = _time(record.expires_at) or "never"
    return [
        token_id,
        record.user_id,
        record.project_id,
        ", ".join(record.roles),
        record.created_at,
        f"{expires} (expired)" if record.is_expired() else expires,
    ]


def _time(time: datetime | None) -> str | None:
    return time.isoformat(timespec="seconds") if time else None


def _document(token_id: str, record: Token) -> dict[str, Any]:
    return {
        "id": token_id,
        "user_id": record.user_id,
        "project_id": record.project_id,
        "roles": record.roles,
        "created_at": record.created_at,
        "expires_at": _time(record.expires_at),
        "expired": record.is_expired(),
    }


@token.command("revoke")
@click.argument("token_id", metavar="ID")
def revoke_token(token_id: str) -> None:
    """Revoke the token with this ID.

    The ID is the part of the token before the dot. The whole token is accepted too.
    """
    token_id = token_id.partition(".")[0]
    revoked = token_file.remove(_token_file(config.from_environ()), token_id)
    with standard_output.reported("The token is revoked."):
        click.echo(
            f"Revoked 1 token: {token_id} of the user {revoked.user_id} in the project {revoked.project_id}"
        )
