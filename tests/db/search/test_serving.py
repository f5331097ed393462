"""Rows that PostgreSQL joins to find the sharing providers that serve each root."""

from collections.abc import Callable, Iterator
from typing import Any

import os_traits
from sqlalchemy import Engine, text

from tests.conftest import ADMIN, NewApp
from tests.support.statements import analyze, sent_statements

HOSTS = 40
SHARING = 60
AGGREGATES = 20

STORE = """
    INSERT INTO aggregates (id, uuid) SELECT id, gen_random_uuid() FROM generate_series(1, :aggregates) AS id;
    INSERT INTO resource_providers (id, uuid, name, root_id, path)
    SELECT id, gen_random_uuid(), 'provider ' || id, id, ARRAY[id]
      FROM generate_series(1, :hosts + :sharing) AS id;
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT resource_providers.id, root_id, aggregates.id FROM resource_providers, aggregates;
    INSERT INTO provider_traits (provider_id, trait_id)
    SELECT resource_providers.id, traits.id FROM resource_providers, traits
     WHERE traits.name = :trait AND resource_providers.id > :hosts;
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT resource_providers.id, root_id, resource_classes.id, 10, 0, 1, 10, 1, 1
      FROM resource_providers, resource_classes
     WHERE resource_classes.name = CASE WHEN resource_providers.id > :hosts THEN 'DISK_GB' ELSE 'VCPU' END
"""


def rows_of_nodes(plan: dict[str, Any]) -> Iterator[int]:
    """Yield the number of rows of each node of a plan."""
    yield plan["Actual Rows"] * plan["Actual Loops"]
    for child in plan.get("Plans", ()):
        yield from rows_of_nodes(child)


def test_common_aggregates_do_not_multiply_the_rows(
    engine: Engine, new_app: NewApp, clean_database: Callable[[], None]
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(STORE),
            {
                "hosts": HOSTS,
                "sharing": SHARING,
                "aggregates": AGGREGATES,
                "trait": os_traits.MISC_SHARES_VIA_AGGREGATE,
            },
        )
    analyze(
        engine, "resource_providers", "provider_aggregates", "provider_traits", "inventories", "aggregates"
    )
    app = new_app(prepared_statements=False)
    with sent_statements(app.extensions["database"].engine) as sent:
        response = app.test_client().get(
            "/allocation_candidates?resources=VCPU:1,DISK_GB:1&limit=5000", headers=ADMIN
        )
    assert response.json is not None
    assert len(response.json["allocation_requests"]) == HOSTS * SHARING
    with engine.connect() as connection:
        [statement] = [each for each in sent if "serving_ids" in each.text]
        command = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
        [plan] = connection.exec_driver_sql(command, statement.parameters).scalar_one()
    pairs = (HOSTS + SHARING) * SHARING
    assert max(rows_of_nodes(plan["Plan"])) <= 2 * pairs < (HOSTS + SHARING) * SHARING * AGGREGATES
