"""Aliases and common table expressions that the statements of all threads share."""

from typing import TypeVar

from sqlalchemy import FromClause

AnyFromClause = TypeVar("AnyFromClause", bound=FromClause)


def shared(clause: AnyFromClause) -> AnyFromClause:
    """Return `clause` with its columns made.

    SQLAlchemy makes them when they are first used, and without a lock: threads that use them at once get
    different columns. A statement with columns of both cannot be compiled, and it may be one that is cached.
    """
    clause.c.keys()
    return clause
