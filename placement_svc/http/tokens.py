"""Authentication by static tokens (`PLACEMENT_AUTH=token`), for a cloud without an identity service."""

import logging
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from flask import Request
from werkzeug.exceptions import Unauthorized

from placement_svc.http import token_file
from placement_svc.http.auth import AuthStrategy, Caller, role_names
from placement_svc.http.token_file import Token
from placement_svc.http.watched_file import WatchedFile

log = logging.getLogger(__name__)


class NoToken(Unauthorized):
    """A request has no token; `challenge` is the value of `WWW-Authenticate` (RFC 6750, section 3)."""

    challenge = 'Bearer realm="placement"'


class UnknownToken(Unauthorized):
    """A request has a token that the file does not contain."""

    challenge = f'{NoToken.challenge}, error="invalid_token"'


class ExpiredToken(UnknownToken):
    """A request has a token that has expired."""


def _read(path: Path) -> dict[str, Token]:
    """Return the tokens of a file, and warn if other users can read it."""
    tokens = token_file.read(path)
    with suppress(OSError):
        if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            _warn_of_readers(path)
    return tokens


@cache
def _warn_of_readers(path: Path) -> None:
    """Log the warning once for each file."""
    log.warning("The token file %s can be read by other users of this machine: set its mode to 0600", path)


def token_strategy(path: Path) -> AuthStrategy:
    """Return the authentication method that identifies callers by the tokens in a file.

    The file is reloaded when it has changed. Raises `SetupError` if it is unreadable or malformed.
    """
    file = WatchedFile(path, _read)

    def identify(request: Request) -> Caller:
        """Return the caller whose token is in `X-Auth-Token` or `Authorization: Bearer`.

        Raises `NoToken`, `UnknownToken` or `ExpiredToken`. Only a caller who knows the secret gets the last.
        """
        sent = request.headers.get("X-Auth-Token") or _bearer_token(request)
        if not sent:
            raise NoToken()
        token_id, _, secret = sent.partition(".")
        token = file.value().get(token_id)
        if token is None or not token.has_secret(secret):
            raise UnknownToken("This token is not known: it is wrong, or has been revoked.")
        if token.is_expired():
            log.info("Refused a token of the user %s, because it has expired", token.user_id)
            raise ExpiredToken("This token has expired.")
        return Caller(token.user_id, token.project_id, role_names(token.roles))

    return AuthStrategy(identify, refresh=file.value)


def _bearer_token(request: Request) -> str | None:
    # Werkzeug's parser raises an exception for the credentials of other schemes that are not ASCII.
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
