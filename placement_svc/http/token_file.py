"""The file of static tokens: a JSON object that maps the id of each token to what is known of it.

A token is ``<id>.<secret>``. The secret is shown once, when it is made; the file has its salted hash.
The hash is a fast one, SHA-256: slow hashes protect passwords, which can be guessed. A secret of 256
random bits cannot, and its hash is worked out for every request.
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


@dataclass(frozen=True)
class Token:
    """Whom a token is for, when it was created (UTC, ISO 8601), and what its secret is known by."""

    user_id: str
    project_id: str
    roles: tuple[str, ...]
    created_at: str
    salt: str
    hash: str

    def has_secret(self, secret: str) -> bool:
        """Tell whether `secret` is the token's, in a time that does not depend on how near it is."""
        return hmac.compare_digest(_hash(self.salt, secret).encode(), self.hash.encode())


def _hash(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}{secret}".encode()).hexdigest()


def read(path: Path) -> dict[str, Token]:
    """Return the tokens of a file by their ids; raise `SetupError` if it cannot be used."""
    try:
        records = orjson.loads(path.read_bytes())
        return {token_id: _token(record) for token_id, record in records.items()}
    except OSError as problem:
        raise SetupError(f"The token file {path} cannot be read: {problem.strerror}") from problem
    except (ValueError, TypeError, AttributeError, KeyError) as problem:
        raise SetupError(f"The token file {path} is not one that this command wrote: {problem}") from problem


def _token(record: dict[str, Any]) -> Token:
    if not isinstance(record["roles"], list):
        raise TypeError("roles is no list")
    token = Token(**{**record, "roles": tuple(record["roles"])})
    texts = [getattr(token, field.name) for field in fields(token) if field.name != "roles"]
    if not all(isinstance(text, str) for text in (*texts, *token.roles)):
        raise TypeError("a value that should be a string is none")
    return token


def add(path: Path, user_id: str, project_id: str, roles: Collection[str]) -> str:
    """Add a token to a file, which is created if need be, and return the token.

    Raises `SetupError` if the file cannot be used.
    """
    token_id, secret, salt = secrets.token_hex(4), secrets.token_urlsafe(32), secrets.token_hex(16)
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    token = Token(user_id, project_id, tuple(roles), created_at, salt, _hash(salt, secret))
    with _rewritten(path) as tokens:
        tokens[token_id] = token
    return f"{token_id}.{secret}"


def remove(path: Path, token_id: str) -> None:
    """Remove a token from a file; raise `SetupError` if the file cannot be used or has no such token."""
    with _rewritten(path) as tokens:
        if tokens.pop(token_id, None) is None:
            raise SetupError(f"The token file {path} has no token {token_id}")


@contextmanager
def _rewritten(path: Path) -> Iterator[dict[str, Token]]:
    """Give the tokens of a file to be changed, and put a new file in its place.

    Who reads the file meanwhile sees all of it as it was or as it is to be. Its owner and mode stay;
    a new one is its owner's alone. Who else changes it, waits.
    """
    path = path.resolve()
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            tokens = read(path) if path.exists() else {}
            yield tokens
            _replace(
                path, orjson.dumps({key: asdict(t) for key, t in tokens.items()}, option=orjson.OPT_INDENT_2)
            )
        finally:
            os.close(directory)
    except OSError as problem:
        raise SetupError(f"The token file {path} cannot be written: {problem.strerror}") from problem


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
