"""Callers known by static tokens, for those without an identity service."""

from pathlib import Path

from flask import Request
from werkzeug.exceptions import Unauthorized

from placement_svc.http import token_file
from placement_svc.http.auth import Caller, Strategy, role_names
from placement_svc.http.watched_file import WatchedFile


class NoToken(Unauthorized):
    """A request bears no token; `challenge` tells how to bear one (RFC 6750, section 3)."""

    challenge = 'Bearer realm="placement"'


class UnknownToken(Unauthorized):
    """A request bears a token that does not count."""

    challenge = f'{NoToken.challenge}, error="invalid_token"'


def tokens(path: Path) -> Strategy:
    """Return the strategy that knows the callers whose tokens stand in a file, as it is at present.

    Raises `SetupError` if the file cannot be used.
    """
    file = WatchedFile(path, token_file.read)

    def identify(asked: Request) -> Caller:
        """Return whose token `asked` bears, as `X-Auth-Token` or as `Authorization: Bearer`.

        Raises `NoToken` or `UnknownToken`.
        """
        sent = asked.headers.get("X-Auth-Token") or _bearer(asked)
        if not sent:
            raise NoToken()
        token_id, _, secret = sent.partition(".")
        token = file.meaning().get(token_id)
        if token is None or not token.has_secret(secret):
            raise UnknownToken("This token does not count.")
        return Caller(token.user_id, token.project_id, role_names(token.roles))

    return Strategy(identify)


def _bearer(asked: Request) -> str | None:
    sent = asked.authorization
    return sent.token if sent and sent.type == "bearer" else None
