"""The table of searches for allocation candidates that found none; it has a bounded number of rows."""

from collections.abc import Sequence
from dataclasses import astuple, fields

from sqlalchemy import Connection, delete, func, or_, select

from placement_svc.db.arrays import insert_rows
from placement_svc.db.tables import empty_answers
from placement_svc.domain.empty_answers import EmptyAnswer

_COLUMNS = [empty_answers.c[field.name] for field in fields(EmptyAnswer)]


def add(connection: Connection, answers: Sequence[EmptyAnswer], max_rows: int) -> None:
    """Insert answers, oldest first, and delete the oldest rows beyond `max_rows`.

    One statement. Ids only increase, so those of the rows to keep are the last `max_rows` ones. The statement
    cannot delete what it inserts.
    """
    inserted = insert_rows(_COLUMNS, map(astuple, answers[-max_rows:])).returning(empty_answers.c.id).cte()
    newest = select(func.max(inserted.c.id)).scalar_subquery()
    connection.execute(delete(empty_answers).where(empty_answers.c.id <= newest - max_rows))


def find(
    connection: Connection, *, request_id: str | None = None, before: str | None = None, limit: int
) -> list[EmptyAnswer]:
    """Return at most `limit` answers, newest first.

    `request_id` is the id of the request, or the one that the caller sent. With `before`, the uuid of an
    answer, return those that are older; none if it has been deleted, as the oldest are deleted first.
    """
    query = select(*_COLUMNS).order_by(empty_answers.c.id.desc()).limit(limit)
    if request_id is not None:
        query = query.where(
            or_(
                empty_answers.c.request_id == request_id,
                empty_answers.c.global_request_id == request_id,
            )
        )
    if before is not None:
        marked = empty_answers.alias("marked")
        query = query.where(
            empty_answers.c.id < select(marked.c.id).where(marked.c.uuid == before).scalar_subquery()
        )
    return [EmptyAnswer(**row._mapping) for row in connection.execute(query)]
