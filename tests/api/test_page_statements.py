"""The statements of pages: as many for any cloud, and by keys wherever the page is."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from placement_svc.db.connections.engine import Database
from tests.conftest import Api
from tests.support import random_cloud
from tests.support.statements import Statement, row_counts, sent_statements
from tests.support.versions import EXTENDED

ALL_PARTS = "include=inventories,usages,traits,aggregates,allocations"

# For the page, for the names in its filters and sort keys, and for each part.
STATEMENTS = {
    "/resource_providers?limit=2": 1,
    "/resource_providers?limit=2&sort_by=-name": 1,
    "/resource_providers?limit=2&name=contains:a": 1,
    "/resource_providers?limit=2&sort_by=used:VCPU": 2,
    f"/resource_providers?limit=2&{ALL_PARTS}": 6,
    "/consumers?limit=2": 1,
    "/consumers?limit=2&include=allocations": 2,
    "/projects?limit=2": 1,
    "/projects?limit=2&sort_by=-VCPU": 2,
    "/capacity": 1,
    "/capacity?group_by=root&limit=2": 2,
    "/capacity?group_by=aggregate&limit=2&sort_by=free:VCPU": 3,
}


def sent(database: Database, api: Api, path: str) -> list[Statement]:
    """Return the statements of a GET request that must succeed."""
    with sent_statements(database.engine) as statements:
        response = api("GET", path, version=EXTENDED)
        assert response.status_code == 200, response.get_data()
    return statements


def test_number_of_statements_depends_on_the_query_only(
    api: Api, call: Callable[..., Any], database: Database
) -> None:
    for path, count in STATEMENTS.items():
        assert len(sent(database, api, path)) <= count, path
    random_cloud.fill(call, 1)
    for path, count in STATEMENTS.items():
        assert len(sent(database, api, path)) == count, path
        whole = path.replace("limit=2", "limit=10000")
        assert len(sent(database, api, whole)) == count, whole


PROVIDERS = 5_000
ADD = f"""
    INSERT INTO resource_providers (id, uuid, name, root_id, path)
    SELECT n, to_char(n, 'FM00000000') || '-0000-4000-8000-000000000000', n, n, ARRAY[n]
      FROM generate_series(1, {PROVIDERS}) AS n;
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT id, root_id, 0, 8, 0, 1, 8, 1, 1 FROM resource_providers;
    INSERT INTO aggregates (id, uuid) VALUES (1, 'a');
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT id, id, 1 FROM resource_providers;
    INSERT INTO projects (id, external_id) SELECT n, n FROM generate_series(1, {PROVIDERS}) AS n;
    INSERT INTO users (id, external_id) SELECT n, n FROM generate_series(1, {PROVIDERS}) AS n;
    INSERT INTO consumers (id, uuid, project_id, user_id)
    SELECT id, uuid, id, id FROM resource_providers;
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT id, id, 0, 1 FROM resource_providers;
    ANALYZE;
"""
LAST = "00004900-0000-4000-8000-000000000000"


@pytest.mark.parametrize("marker", ["", f"&marker={LAST}"], ids=["first", "last"])
@pytest.mark.parametrize(
    "path", [f"/resource_providers?limit=100&{ALL_PARTS}", "/consumers?limit=100&include=allocations"]
)
def test_pages_are_read_by_keys(api: Api, database: Database, path: str, marker: str) -> None:
    with database.engine.begin() as connection:
        connection.execute(text(ADD))
    statements = sent(database, api, path + marker)
    assert statements
    with database.engine.connect() as connection:
        for statement, parameters in statements:
            plan = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars().all()
            scanned = {table for line in plan for table in re.findall(r"Seq Scan on (\w+)", line)}
            assert not scanned & {"resource_providers", "consumers", "projects", "users"}, plan


MEMBERSHIPS = 300
ADD_LARGE_PROVIDER = f"""
    INSERT INTO resource_providers (id, uuid, name, root_id, path)
    VALUES (1, '00000001-0000-4000-8000-000000000000', 'large', 1, ARRAY[1]);
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT 1, 1, id, 8, 0, 1, 8, 1, 1 FROM resource_classes;
    INSERT INTO provider_traits (provider_id, trait_id)
    SELECT 1, id FROM traits ORDER BY id LIMIT {MEMBERSHIPS};
    INSERT INTO aggregates (id, uuid) SELECT n, n FROM generate_series(1, {MEMBERSHIPS}) AS n;
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT 1, 1, n FROM generate_series(1, {MEMBERSHIPS}) AS n;
    ANALYZE;
"""


@pytest.mark.parametrize("grouping", ["trait", "aggregate"])
def test_page_sums_only_its_own_groups(api: Api, database: Database, grouping: str) -> None:
    with database.engine.begin() as connection:
        connection.execute(text(ADD_LARGE_PROVIDER))
    statements = sent(database, api, f"/capacity?group_by={grouping}&limit=2")
    assert "sum(" not in statements[0].text
    with database.engine.connect() as connection:
        for statement in statements:
            # A root has each trait as its own and as its root's.
            assert max(row_counts(connection, statement)) <= 2 * MEMBERSHIPS
