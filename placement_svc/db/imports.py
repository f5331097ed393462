"""Import records in one transaction (`docs/operations.md`, "Moving data").

Records are first copied into temporary staging tables. Then a fixed number of statements checks and stores
all of them, so that the time of an import is proportional to the number of rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from sqlalchemy import Connection, text

from placement_svc.db import import_statements as statements
from placement_svc.db.connections.engine import Database
from placement_svc.db.connections.transactions import begin
from placement_svc.db.errors import map_driver_errors
from placement_svc.db.maintenance import disable_timeouts, wait_to_lock_out_writers
from placement_svc.domain.allocations import Claim
from placement_svc.domain.records import (
    MAX_PROBLEMS,
    ImportProblem,
    ImportRefused,
    ImportResult,
    PlacementGroupRecord,
    ProviderRecord,
    Record,
    ResourceClassRecord,
    TraitRecord,
)

BATCH_SIZE = 10_000
"""Rows of a staging table that one statement inserts."""


def load(
    database: Database,
    records: Iterable[tuple[int, Record]],
    *,
    allow_overcommitted: bool,
    dry_run: bool = False,
) -> ImportResult:
    """Import records, each with its line number, in any order; all of them or none.

    The records add to the existing data. With `allow_overcommitted`, allocations may exceed the capacity or
    violate the units of an inventory, as existing allocations do after an inventory has shrunk
    (`docs/spec/resources.md 4`). The generation of a new provider counts one change each for its inventories,
    its traits, its aggregates and each of its consumers. The generation of a consumer is 1. With `dry_run`,
    everything is checked and rolled back. Raises `ImportRefused`, and `OutcomeUnknown` if the connection is
    lost during the commit.
    """
    database.prepare()
    # Database.write would retry the transaction after a conflict, but the records can be read only once.
    with map_driver_errors(), begin(database.engine) as connection:
        disable_timeouts(connection)
        counts = _stage(connection, records)
        wait_to_lock_out_writers(connection)
        traits = connection.execute(text(statements.INSERT_TRAITS)).rowcount
        resource_classes = connection.execute(text(statements.INSERT_RESOURCE_CLASSES)).rowcount
        _refuse(_find_problems(connection, statements.FIND_CONTRADICTIONS))
        connection.execute(text(statements.COMPUTE_PATHS))
        _refuse(_find_problems(connection, [statements.FIND_CYCLES]))
        connection.execute(text(statements.INSERT_PROVIDERS))
        connection.execute(text(statements.ANALYZE_INVENTORIES))
        connection.execute(text(statements.INSERT_CONSUMERS))
        connection.execute(text(statements.INSERT_PLACEMENT_GROUPS))
        overcommitted = _find_problems(connection, statements.FIND_OVERCOMMITTED)
        if not allow_overcommitted:
            _refuse(overcommitted)
        if dry_run:
            connection.rollback()
        else:
            connection.execute(text(statements.ANALYZE))
    return ImportResult(
        providers=counts["staged_providers"],
        consumers=counts["staged_consumers"],
        placement_groups=counts["staged_groups"],
        traits=traits,
        resource_classes=resource_classes,
        overcommitted=overcommitted,
    )


def vacuum(database: Database, table: str) -> None:
    """Vacuum and analyze a table, outside of a transaction; raises `Unavailable`.

    Index-only scans read the table as well, until VACUUM has set the visibility map.
    """
    autocommit = database.engine.execution_options(isolation_level="AUTOCOMMIT")
    with map_driver_errors(), autocommit.connect() as connection:
        connection.execute(text(f"VACUUM (ANALYZE) {table}"))


def _stage(connection: Connection, records: Iterable[tuple[int, Record]]) -> dict[str, int]:
    """Copy records into the staging tables; return the number of rows of each table."""
    for table, columns in statements.STAGING_TABLES.items():
        connection.execute(text(f"CREATE TEMPORARY TABLE {table} ({columns}) ON COMMIT DROP"))
    counts: dict[str, int] = defaultdict(int)
    buffers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line_number, record in records:
        for table, rows in _rows(record):
            buffers[table] += ({"number": line_number, **row} for row in rows)
            if len(buffers[table]) >= BATCH_SIZE:
                counts[table] += _insert(connection, table, buffers.pop(table))
    for table, rows in buffers.items():
        counts[table] += _insert(connection, table, rows)
    connection.execute(text(statements.INDEX_STAGING_TABLES))
    return counts


def _rows(record: Record) -> Iterable[tuple[str, Sequence[dict[str, Any]]]]:
    """Yield each staging table that a record has rows in, with these rows."""
    match record:
        case TraitRecord(name):
            yield "staged_traits", [{"name": name}]
        case ResourceClassRecord(name):
            yield "staged_classes", [{"name": name}]
        case ProviderRecord():
            changes = (record.inventories, record.traits, record.aggregates)
            provider = {
                "uuid": record.uuid,
                "name": record.name,
                "parent_uuid": record.parent_uuid,
                "generation": sum(map(bool, changes)),
            }
            yield "staged_providers", [provider]
            yield "staged_provider_traits", [{"trait": name} for name in record.traits]
            yield "staged_provider_aggregates", [{"aggregate": uuid} for uuid in record.aggregates]
            yield (
                "staged_inventories",
                [
                    {"resource_class": name, **asdict(inventory)}
                    for name, inventory in record.inventories.items()
                ],
            )
        case PlacementGroupRecord(group, members):
            yield (
                "staged_groups",
                [{"uuid": group.uuid, "policy": group.policy, "max_per_domain": group.max_per_domain}],
            )
            yield (
                "staged_group_aggregates",
                [
                    {"position": position, "aggregate": uuid}
                    for position, uuid in enumerate(group.aggregates or ())
                ],
            )
            yield "staged_group_members", [{"consumer_uuid": uuid} for uuid in members]
        case Claim():
            consumer = {
                "uuid": record.consumer_uuid,
                "project_id": record.project_id,
                "user_id": record.user_id,
                "consumer_type": record.consumer_type,
            }
            yield "staged_consumers", [consumer]
            yield (
                "staged_allocations",
                [
                    {"provider_uuid": provider, "resource_class": resource_class, "used": used}
                    for provider, resources in record.allocations.items()
                    for resource_class, used in resources.items()
                ],
            )


def _insert(connection: Connection, table: str, rows: Sequence[dict[str, Any]]) -> int:
    """Insert rows into a staging table; return their number."""
    if rows:
        statement = statements.insert_rows(table, columns=", ".join(rows[0]))
        connection.execute(text(statement), {"rows": orjson.dumps(rows).decode()})
    return len(rows)


def _find_problems(connection: Connection, queries: Iterable[str]) -> list[ImportProblem]:
    return [
        ImportProblem(tuple(line_numbers), message)
        for query in queries
        for line_numbers, message in connection.execute(text(f"{query} ORDER BY 1 LIMIT {MAX_PROBLEMS}"))
    ]


def _refuse(problems: Sequence[ImportProblem]) -> None:
    """Raise `ImportRefused` if there are problems."""
    if problems:
        raise ImportRefused(problems)
