"""Statements that PostgreSQL keeps prepared for a session, so that it does not plan them for each search.

psycopg2 prepares nothing by itself, so PREPARE and EXECUTE are sent as SQL. The statements bypass the work of
SQLAlchemy for each execution, which takes longer than most of them; its events and errors are the same.
"""

import logging
import secrets
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Any, NoReturn

from psycopg2.extensions import adapt  # type: ignore[import-untyped]
from sqlalchemy import ClauseElement, Connection
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

log = logging.getLogger(__name__)

MAX_PREPARED = 24
"""The most statements that a session keeps prepared; a large one takes PostgreSQL 0.4 MB."""

MAX_RECENT = 64
"""How many texts are remembered that a session has executed once."""

MAX_TEXT_LENGTH = 10_000
"""Characters of the longest text that is prepared."""

MAX_LOGGED_LENGTH = 40
"""Characters that an error shows of a text with values; the first value comes later."""

MAX_PLAN_SECONDS = 30.0
"""Seconds after which a statement is prepared again.

PostgreSQL plans anew when a table is analyzed. In a cloud that has just been loaded, that can take minutes.
"""

STATEMENT_UNKNOWN = "26000"
PLAN_UNUSABLE = "0A000"
"""PostgreSQL cannot execute a prepared statement any more because the type of a column has changed."""

STALE_STATEMENT = {STATEMENT_UNKNOWN, PLAN_UNUSABLE}
"""The error codes after which the same transaction succeeds, as nothing is prepared in its session."""

_PREPARATION = "placement_svc.preparation"
"""The key of the `Preparation` in the execution options of an engine."""

_SESSION = "placement_svc.prepared"
"""The key of the `_Session` in the `info` of a connection, which a new session does not inherit."""

NO_VALUES: Mapping[str, Any] = MappingProxyType({})

_DIALECT = PGDialect_psycopg2()  # type: ignore[no-untyped-call]


@dataclass
class Preparation:
    """Whether the sessions of an engine prepare statements; it ends when a connection pooler is noticed."""

    is_enabled: bool

    @property
    def options(self) -> dict[str, Any]:
        """The execution options of the engine."""
        return {_PREPARATION: self}

    def disable(self) -> None:
        """Prepare no statements from now on: consecutive transactions have different sessions."""
        if self.is_enabled:
            self.is_enabled = False
            log.warning(
                "Statements are not prepared, because a connection pooler shares the sessions of the database"
                " among clients. Set PLACEMENT_PREPARED_STATEMENTS=0 to skip this attempt."
            )


@dataclass
class _Prepared:
    """A prepared statement: its name in the session, and when it was prepared (monotonic clock)."""

    name: str
    since: float


@dataclass
class _Session:
    """The prepared statements of a session by their text, the least recently used first.

    `cleanup` is sent before the next PREPARE. Names contain a random text: behind a connection pooler, the
    statement of another client could otherwise have the same name.
    """

    statements: OrderedDict[str, _Prepared] = field(default_factory=OrderedDict)
    recent: OrderedDict[int, None] = field(default_factory=OrderedDict)
    prefix: str = field(default_factory=lambda: f"p{secrets.token_hex(6)}")
    count: int = 0
    cleanup: str = ""

    def find(self, text: str) -> _Prepared | None:
        """Return a prepared statement that is not too old."""
        prepared = self.statements.get(text)
        if prepared is None or monotonic() - prepared.since > MAX_PLAN_SECONDS:
            return None
        self.statements.move_to_end(text)
        return prepared

    def is_repeated(self, text: str) -> bool:
        """Return whether the session has executed a text recently; forget it then, otherwise remember it."""
        key = hash(text)
        if key in self.recent:
            del self.recent[key]
            return True
        self.recent[key] = None
        if len(self.recent) > MAX_RECENT:
            self.recent.popitem(last=False)
        return False

    def sql_and_name(self, text: str, types: str = "", *, at_first_use: bool = False) -> tuple[str, str]:
        """Return the SQL to send before EXECUTE, and the name of a prepared text; empty if it is not one.

        It is prepared when it is repeated, or `at_first_use`, and anew when its plan is old.
        """
        if (prepared := self.find(text)) is not None:
            return "", prepared.name
        if at_first_use or text in self.statements or self.is_repeated(text):
            sql = self.prepare(text, types)
            return sql, self.statements[text].name
        return "", ""

    def prepare(self, text: str, types: str) -> str:
        """Return the SQL that prepares a text, and drops the statements that it replaces."""
        replaced = [self.statements.pop(text)] if text in self.statements else []
        while len(self.statements) >= MAX_PREPARED:
            replaced.append(self.statements.popitem(last=False)[1])
        dropped = "".join(f"DEALLOCATE {each.name};" for each in replaced)
        self.count += 1
        name = f"{self.prefix}_{self.count}"
        self.statements[text] = _Prepared(name, monotonic())
        cleanup, self.cleanup = self.cleanup, ""
        return f"{cleanup}{dropped}PREPARE {name}{types} AS {text};"

    def forget(self) -> None:
        """Assume that nothing is prepared: the session of a failed statement may be another one."""
        self.statements.clear()
        self.cleanup = "DEALLOCATE ALL;"


@dataclass(frozen=True)
class CompiledQuery:
    """The text of a query for the driver, and the values of its parameters: None for those without one."""

    text: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, query: ClauseElement) -> "CompiledQuery":
        """Compile a query."""
        compiled: Any = query.compile(dialect=_DIALECT)
        return cls(compiled.string, compiled.params)

    def literals(self, values: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, str]:
        """Return the SQL of each parameter: `values` override the values of the query."""
        return {
            name: adapt(values.get(name, value)).getquoted().decode()
            for name, value in self.values.items()
            if name not in without
        }

    def with_literals(self, values: Mapping[str, Any]) -> str:
        """Return the text with the values of all parameters: `values` override those of the query."""
        return self.text % self.literals(values)


class FixedStatement:
    """A statement whose text is always the same, with parameters.

    `types` are the PostgreSQL types of the parameters by name. Its plan must not depend on their values, as
    PostgreSQL plans it without them once it has been executed a few times: hide lists from the planner, in
    subqueries. Other parameters of the query have these `values`, which are a part of the text. With
    `prepares_at_first_use`, a session prepares the statement at its first execution, otherwise when it is
    repeated. The SQL `preceding` is sent along with it, before it.
    """

    def __init__(
        self,
        query: ClauseElement | CompiledQuery,
        types: Mapping[str, str],
        values: Mapping[str, Any] = NO_VALUES,
        *,
        prepares_at_first_use: bool = True,
        preceding: str = "",
    ) -> None:
        self.prepares_at_first_use = prepares_at_first_use
        self.preceding = f"{preceding};" if preceding else ""
        compiled = query if isinstance(query, CompiledQuery) else CompiledQuery.of(query)
        literals = compiled.literals(values, without=types)
        numbers = {name: f"${number}" for number, name in enumerate(types, 1)}
        self.types = f" ({', '.join(types.values())})"
        self.text: str = compiled.text % (literals | numbers)
        """The text with the parameters of PREPARE."""
        placeholders = {name: f"%({name})s" for name in types}
        doubled = {name: literal.replace("%", "%%") for name, literal in literals.items()}
        self.driver_text: str = compiled.text.replace("%%", "%%%%") % (doubled | placeholders)
        """The text with the placeholders of the driver."""
        self.arguments = f"({', '.join(placeholders.values())})"


def fetch_rows(
    connection: Connection, statement: FixedStatement, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Return the rows of a statement as the driver returns them."""
    return list(each_fixed_row(connection, statement, values))


def each_fixed_row(
    connection: Connection, statement: FixedStatement, values: Mapping[str, Any]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a statement as the driver returns them."""
    cursor: Any = connection.connection.cursor()
    session = _session(connection) if len(statement.text) <= MAX_TEXT_LENGTH else None
    text = statement.driver_text
    if session is not None:
        sql, name = session.sql_and_name(
            statement.text, statement.types, at_first_use=statement.prepares_at_first_use
        )
        if name:
            text = f"{sql.replace('%', '%%')}EXECUTE {name}{statement.arguments}"
    _execute(connection, cursor, statement.preceding + text, values)
    yield from cursor
    cursor.close()


def each_row(connection: Connection, text: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a text that contains all values; a session prepares it when it is repeated.

    PostgreSQL plans it with these values, as it would without PREPARE.
    """
    cursor: Any = connection.connection.cursor()
    session = _session(connection) if len(text) <= MAX_TEXT_LENGTH else None
    sent = text
    if session is not None:
        sql, name = session.sql_and_name(text)
        if name:
            sent = f"{sql}EXECUTE {name}"
    _execute(connection, cursor, sent, None)
    yield from cursor
    cursor.close()


def _session(connection: Connection) -> _Session | None:
    """Return what is prepared in the session of a connection; None if it prepares nothing."""
    preparation: Preparation | None = connection.get_execution_options().get(_PREPARATION)
    if preparation is None or not preparation.is_enabled:
        return None
    session: _Session | None = connection.info.get(_SESSION)
    if session is None:
        if not _has_own_session(connection):
            preparation.disable()
            return None
        session = connection.info[_SESSION] = _Session()
    return session


def _has_own_session(connection: Connection) -> bool:
    """Return whether the process that PostgreSQL names is the one that the connection was opened to.

    A connection pooler names another one, as it chooses a session for each transaction.
    """
    driver_connection: Any = connection.connection.driver_connection
    cursor = driver_connection.cursor()
    try:
        cursor.execute("SELECT pg_backend_pid()")
        [process_id] = cursor.fetchone()
    except BaseException as error:
        _raise(connection, cursor, "SELECT pg_backend_pid()", error)
    cursor.close()
    return bool(process_id == driver_connection.info.backend_pid)


def _execute(connection: Connection, cursor: Any, text: str, values: Mapping[str, Any] | None) -> None:
    """Execute a text by the driver, with the events and errors of SQLAlchemy."""
    events: Any = connection.engine.dispatch
    for listener in events.before_cursor_execute:
        listener(connection, cursor, text, values, None, False)
    try:
        cursor.execute(text, values)
    except BaseException as error:
        _note_failure(connection, error)
        # The error is logged, and a text without placeholders contains the data of a client.
        _raise(connection, cursor, text if values is not None else text[:MAX_LOGGED_LENGTH], error)
    for listener in events.after_cursor_execute:
        listener(connection, cursor, text, values, None, False)


def _note_failure(connection: Connection, error: BaseException) -> None:
    """Forget what the session has prepared; a session that does not know a statement is another one."""
    session: _Session | None = connection.info.get(_SESSION)
    if session is not None:
        session.forget()
        if getattr(error, "pgcode", None) == STATEMENT_UNKNOWN:
            connection.get_execution_options()[_PREPARATION].disable()


def _raise(connection: Connection, cursor: Any, text: str, error: BaseException) -> NoReturn:
    """Raise the error that SQLAlchemy raises; it also discards a connection that is lost."""
    # There is no public function for this. The tests of lost connections fail if it changes.
    connection._handle_dbapi_exception(error, text, None, cursor, None)
