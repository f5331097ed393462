"""The rows that the map of hosts reads: with a filter, those of the hosts that match it."""

import pytest
from sqlalchemy import text

from placement_svc.db.connections.engine import Database
from placement_svc.db.host_map import read_map
from placement_svc.domain.hosts import HostFilter
from tests.support.statements import row_counts, sent_statements

HOSTS = 2_000
MEMBERS = 100
MEMBERS_OF = "a0000000-0000-4000-8000-000000000000"
ADD = f"""
    INSERT INTO resource_providers (id, uuid, name, root_id, path)
    SELECT n, gen_random_uuid()::text, 'host' || n, n, ARRAY[n] FROM generate_series(1, {HOSTS}) AS n;
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT id, root_id, class_id, 8, 0, 1, 8, 1, 1 FROM resource_providers, generate_series(0, 1) AS class_id;
    INSERT INTO aggregates (id, uuid) SELECT id, uuid FROM resource_providers;
    INSERT INTO aggregates (id, uuid) VALUES (0, '{MEMBERS_OF}');
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT id, id, id FROM resource_providers UNION ALL
    SELECT id, id, 0 FROM resource_providers WHERE id <= {MEMBERS};
    ANALYZE;
"""


@pytest.mark.parametrize("by_aggregate", [False, True])
@pytest.mark.parametrize("fill", [None, "VCPU"])
def test_filtered_map_reads_only_the_hosts_that_match(
    database: Database, by_aggregate: bool, fill: str | None
) -> None:
    """PostgreSQL expects that few hosts match: it does not know how large which aggregate is."""
    with database.engine.begin() as connection:
        connection.execute(text(ADD))

    with sent_statements(database.engine) as sent:
        hosts = database.read(
            read_map,
            HostFilter(aggregate=MEMBERS_OF),
            fill=fill,
            by_aggregate=by_aggregate,
            by_trait=None,
            max_hosts=HOSTS,
        )
    assert len(hosts.cells) == MEMBERS
    with database.engine.connect() as connection:
        assert sum(row_counts(connection, sent[-1], "inventories")) <= 2 * MEMBERS
        # The filter reads the members, and the groups the aggregates of each.
        assert sum(row_counts(connection, sent[-1], "provider_aggregates")) <= 4 * MEMBERS
