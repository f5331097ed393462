"""The revisions of the schema: which one a database has, and which ones this code can use or reach."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import ProgrammingError

from placement_svc.db.errors import UNDEFINED, map_driver_errors, sqlstate
from placement_svc.domain.errors import Unavailable

BEFORE_BASELINE = frozenset(f"000{number}" for number in range(1, 7))
"""Revisions that existed before the baseline and have no migration any more; 0007 is now the baseline's."""

LAST_BEFORE_BASELINE = "c8c4448"
"""The last commit that has those migrations."""

BASE = "base"
"""The name of the revision of an empty database."""

HEAD = "head"
"""The name of the newest revision."""

_PACKAGE = Path(__file__).parents[1]
_INI = next(
    (ini for ini in (_PACKAGE / "alembic.ini", _PACKAGE.parent / "alembic.ini") if ini.exists()),
    _PACKAGE / "alembic.ini",
)
"""The configuration of Alembic: in the package if it is installed, above it in a checkout."""


def alembic_config() -> Config:
    """Return the configuration of Alembic."""
    return Config(_INI)


@cache
def _history() -> ScriptDirectory:
    return ScriptDirectory.from_config(alembic_config())


def newest() -> str | None:
    """Return the newest revision of this code, which it is written for."""
    return _history().get_current_head()


def revision_of(connection: Connection) -> str | None:
    """Return the revision of a database, None for an empty one; raise `Unavailable` if it has several."""
    heads = MigrationContext.configure(connection).get_current_heads()
    if len(heads) > 1:
        raise Unavailable(
            f"The table alembic_version has the revisions {', '.join(sorted(heads))}, and must have one:"
            " restore a backup, or delete the others if you know that the schema does not have them."
        )
    return heads[0] if heads else None


def current(engine: Engine) -> str | None:
    """Return the revision of a database, None for an empty one; raise `Unavailable` if it has several."""
    with map_driver_errors(), engine.connect() as connection:
        return revision_of(connection)


def mismatch(revision: str | None) -> str | None:
    """Return why this code cannot use a schema at this revision, None if it can.

    It can use a newer schema: the schema is upgraded before the services, and a migration keeps the release
    before it working.
    """
    if revision in BEFORE_BASELINE:
        return (
            f"The schema is at revision {revision}, and this version can upgrade it only from 0007 on: run"
            f" `placement-svc db upgrade` of commit {LAST_BEFORE_BASELINE} first, then that of this version."
        )
    if revision == newest() or is_newer(revision):
        return None
    return f"The schema is at revision {revision or BASE} of {newest()}: run `placement-svc db upgrade`."


@contextmanager
def map_outdated_schema(engine: Engine) -> Iterator[None]:
    """Raise `Unavailable` if the block names a table, column or function that an outdated schema lacks.

    If the schema is up to date, or the database has none, the error of the driver passes.
    """
    try:
        yield
    except ProgrammingError as error:
        if sqlstate(error) in UNDEFINED:
            revision = current(engine)
            problem = mismatch(revision)
            if revision is not None and problem is not None:
                raise Unavailable(problem) from error
        raise


def is_newer(revision: str | None) -> bool:
    """Return whether a revision is newer than this code, which is to say unknown to it."""
    known = {script.revision for script in _history().walk_revisions()}
    return revision is not None and revision not in known | BEFORE_BASELINE


def check_downgrade(current: str | None, revision: str) -> None:
    """Raise `Unavailable` unless a schema at the revision `current` can be downgraded to `revision`."""
    known = _known(current, "downgrade")
    older = known[: known.index(current or BASE) + 1]
    if revision not in older and not _is_step("-", revision, len(older) - 1):
        raise _unreachable(current, "downgraded", revision, older)


def check_upgrade(current: str | None, revision: str) -> None:
    """Raise `Unavailable` unless a schema at the revision `current` can be upgraded to `revision`.

    An older revision is accepted, and nothing is upgraded then.
    """
    if revision == HEAD:
        return
    known = _known(current, "upgrade")
    newer = known[known.index(current or BASE) + 1 :]
    if revision not in known[1:] and not _is_step("+", revision, len(newer)):
        raise _unreachable(current, "upgraded", revision, [HEAD, *newer])


def _known(current: str | None, verb: str) -> list[str]:
    """Return all revisions from the base on; raise `Unavailable` if `current` is not one of them."""
    known = [BASE, *reversed([script.revision for script in _history().walk_revisions()])]
    if current in BEFORE_BASELINE:
        raise Unavailable(str(mismatch(current)))
    if current is not None and current not in known:
        raise Unavailable(
            f"The schema is at revision {current}, which is newer than this version of placement-svc:"
            f" {verb} it with the version that has created it."
        )
    return known


def _is_step(sign: str, revision: str, count: int) -> bool:
    """Return whether `revision` is a number of steps in the direction of `sign`, and at most `count`."""
    steps = revision.removeprefix(sign)
    return revision.startswith(sign) and steps.isdecimal() and 0 < int(steps) <= count


def _unreachable(current: str | None, participle: str, revision: str, targets: Sequence[str]) -> Unavailable:
    """Return the error for a revision that cannot be reached; `targets` can."""
    name, *revisions = targets
    if len(revisions) == 1:
        name += f" or {revisions[0]}"
    elif revisions:
        name += f", or a revision from {revisions[0]} to {revisions[-1]}"
    return Unavailable(
        f"The schema is at revision {current or BASE} and cannot be {participle} to {revision!r}:"
        f" name {name}."
    )


def check_upgradable(connection: Connection) -> None:
    """Raise `Unavailable` if the schema is at a revision from before the baseline that has no migration."""
    revision = revision_of(connection)
    if revision in BEFORE_BASELINE:
        raise Unavailable(str(mismatch(revision)))
