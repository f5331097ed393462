"""The domains of many roots are read with few rows, however many aggregates a group lists."""

from typing import Any

from sqlalchemy import Connection, text

from placement_svc.db import placement_groups
from placement_svc.db.connections.engine import Database
from tests.conftest import Api, LoadCloud
from tests.support.cloud import read, uuid_of
from tests.support.statements import analyze

ROOTS = 100
GROUP = uuid_of("group")

_ROWS_READ = text("""
    SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0) + coalesce(idx_scan, 0))
      FROM pg_stat_xact_user_tables
     WHERE relname IN ('aggregates', 'placement_group_aggregates', 'provider_aggregates')
""")


def test_domains_of_many_roots_are_read_together(database: Database, api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("; ".join(f"h{n}@a{n}" for n in range(ROOTS))))
    racks = [uuid_of(f"a{n}") for n in range(ROOTS)]
    assert (
        api("PUT", f"/placement_groups/{GROUP}", {"policy": "affinity", "across": racks}).status_code == 201
    )

    analyze(database.engine, "placement_group_aggregates", "aggregates", "provider_aggregates")

    def domains(connection: Connection) -> tuple[Any, int]:
        found = placement_groups.find(connection, GROUP)
        assert found is not None
        root_ids = list(connection.scalars(text("SELECT id FROM resource_providers")))
        before: int = connection.scalar(_ROWS_READ) or 0
        of_roots = placement_groups.domains(connection, found[0], root_ids)
        return of_roots, (connection.scalar(_ROWS_READ) or 0) - before

    of_roots, rows = database.read(domains)
    assert sorted(map(str, of_roots.values())) == sorted(racks)
    # Each table has a row for each root. A subquery for each root would read all of them each time.
    assert rows < 10 * ROOTS
