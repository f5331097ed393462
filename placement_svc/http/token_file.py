"""The file of static tokens: a JSON object that maps the id of each token to its record.

A token is ``<id>.<secret>``. The secret is shown once, when the token is created; the file has its salted
hash. The hash is a fast one, SHA-256: slow hashes protect passwords, which can be guessed. A secret of 256
random bits cannot be guessed, and its hash is computed for every request.
"""

import fcntl
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from placement_svc.domain.errors import SetupError
from placement_svc.http.watched_file import read_regular_file


@dataclass(frozen=True)
class Token:
    """The record of a token: its caller, the time of creation (UTC, ISO 8601), and the hash of its secret.

    From `expires_at` on, the token is not accepted; None means that it does not expire.
    """

    user_id: str
    project_id: str
    roles: tuple[str, ...]
    created_at: str
    salt: str
    hash: str
    expires_at: datetime | None = None

    def is_expired(self) -> bool:
        """Return whether the token has expired."""
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)

    def has_secret(self, secret: str) -> bool:
        """Return whether `secret` is the secret of the token, compared in constant time."""
        return hmac.compare_digest(_hash(self.salt, secret).encode(), self.hash.encode())


def _hash(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}{secret}".encode()).hexdigest()


def read(path: Path) -> dict[str, Token]:
    """Return the tokens of a file by id; raise `SetupError` if the file is unreadable or malformed."""
    try:
        records = orjson.loads(read_regular_file(path))
        return {token_id: _token(record) for token_id, record in records.items()}
    except FileNotFoundError as error:
        raise SetupError(
            f"The token file {path} does not exist: `placement-svc token create` creates it"
        ) from error
    except OSError as error:
        raise SetupError(f"The token file {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise SetupError(
            f"The token file {path} was not written by `placement-svc token`: {error}"
        ) from error


_OTHER_FIELDS = ("roles", "expires_at")
"""The fields of a token that are not strings."""


def _record(token: Token) -> dict[str, Any]:
    """Return the record of a token; without `expires_at` if it has none, for services of older versions."""
    return {name: value for name, value in asdict(token).items() if value is not None}


def _token(record: dict[str, Any]) -> Token:
    if not isinstance(record["roles"], list):
        raise TypeError("roles is not a list")
    expires_at = None
    if record.get("expires_at") is not None:
        expires_at = datetime.fromisoformat(record["expires_at"])
        if expires_at.tzinfo is None:
            raise ValueError("expires_at has no time zone")
    token = Token(**{**record, "roles": tuple(record["roles"]), "expires_at": expires_at})
    texts = [getattr(token, field.name) for field in fields(token) if field.name not in _OTHER_FIELDS]
    if not all(isinstance(text, str) for text in (*texts, *token.roles)):
        raise TypeError("a value is not a string")
    return token


def add(
    path: Path, user_id: str, project_id: str, roles: Collection[str], expires_at: datetime | None = None
) -> str:
    """Add a token to a file, which is created if missing, and return the token.

    Raises `SetupError` if the file cannot be read or written.
    """
    token_id, secret, salt = secrets.token_hex(4), secrets.token_urlsafe(32), secrets.token_hex(16)
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    token = Token(
        user_id=user_id,
        project_id=project_id,
        roles=tuple(roles),
        created_at=created_at,
        salt=salt,
        hash=_hash(salt, secret),
        expires_at=expires_at,
    )
    with _rewrite(path) as tokens:
        tokens[token_id] = token
    return f"{token_id}.{secret}"


def remove(path: Path, token_id: str) -> Token:
    """Remove a token from a file, and return its record.

    Raises `SetupError` if the file has no such token or cannot be written.
    """
    with _rewrite(path) as tokens:
        token = tokens.pop(token_id, None)
        if token is None:
            raise SetupError(f"The token file {path} has no token {token_id}")
    return token


@contextmanager
def _rewrite(path: Path) -> Iterator[dict[str, Token]]:
    """Yield the tokens of a file to be changed, then replace the file atomically.

    Concurrent readers see the old or the new content, and concurrent writers wait for the lock of the
    directory. The file keeps its owner and mode; a new file has the mode 0600.
    """
    path = path.resolve()
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            tokens = read(path) if path.exists() else {}
            yield tokens
            records = {token_id: _record(token) for token_id, token in tokens.items()}
            _replace(path, orjson.dumps(records, option=orjson.OPT_INDENT_2))
        finally:
            os.close(directory)
    except FileNotFoundError as error:
        raise SetupError(f"The directory of the token file {path} does not exist") from error
    except OSError as error:
        raise SetupError(f"The token file {path} cannot be written: {error.strerror}") from error


def _replace(path: Path, content: bytes) -> None:
    descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            if path.exists():
                old = path.stat()
                os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, old.st_mode & 0o777)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise
