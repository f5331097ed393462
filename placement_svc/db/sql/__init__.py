"""The functions, procedures and triggers of the database: one `.sql` file each holds the current text.

A file is named after its function or procedure; a trigger function's file has its triggers too. Every
statement is a `CREATE OR REPLACE`, so a file can be executed again. Migrations create the objects with
`execute` (`docs/architecture.md`, Migrations).
"""

from pathlib import Path

from sqlalchemy import Connection

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all functions and procedures, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.sql"))


def read(name: str) -> str:
    """Return the text of a function or procedure, with that of its triggers."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def execute(connection: Connection, *names: str) -> None:
    """Create these functions and procedures with their triggers, or replace those that exist.

    The order matters only where a function in LANGUAGE sql calls another one: PostgreSQL checks the names
    in PL/pgSQL when they are first used.
    """
    for name in names:
        # Without parameters, so that "%" and ":" in the text have no meaning for the driver or SQLAlchemy.
        connection.exec_driver_sql(read(name), execution_options={"no_parameters": True})
