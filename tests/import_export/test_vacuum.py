"""An import vacuums the tables that it has filled."""

from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result
from sqlalchemy import Engine, make_url, text

from placement_svc.cli import main
from placement_svc.db.import_statements import FILLED_TABLES
from tests.support.cloud import uuid_of
from tests.support.records import consumer, lines, provider, vcpus
from tests.support.service import wait_until
from tests.support.snapshot import snapshot

Run = Callable[..., Result]

FIELDS = {"inventories": vcpus(8), "traits": ["HW_NUMA_ROOT"], "aggregates": [uuid_of("A")]}
FILE = lines(
    *(provider(f"host {n}", **FIELDS) for n in range(500)),
    *(consumer(f"c{n}", {f"host {n}": {"VCPU": 1}}) for n in range(500)),
)


UNCOMMITTED = (
    """
    INSERT INTO resource_providers (id, uuid, name, root_id, path) OVERRIDING SYSTEM VALUE
    SELECT id, gen_random_uuid()::text, id::text, id, ARRAY[id] FROM generate_series(1, 500) AS id
    """,
    """
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT provider.id, provider.id, class.id, 8, 0, 1, 8, 1, 1
      FROM resource_providers AS provider
      JOIN resource_classes AS class ON class.name = 'VCPU'
    """,
)
"""Statements that insert as many inventories as the import."""


def truncate(engine: Engine) -> None:
    """Remove all rows and pages, so that no visibility map is left of another test."""
    with engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(FILLED_TABLES)} CASCADE"))


def not_visible(engine: Engine) -> set[str]:
    """Return the filled tables of which a page is not marked as visible to all transactions."""
    query = text(
        "SELECT relname FROM pg_class WHERE relname = ANY(:tables) AND relkind = 'r'"
        " AND relallvisible < pg_relation_size(oid) / current_setting('block_size')::int"
    )
    with engine.connect() as connection:
        return set(connection.scalars(query, {"tables": list(FILLED_TABLES)}))


def test_an_import_marks_the_new_rows_as_visible(app: Any, run: Run, engine: Engine) -> None:
    truncate(engine)
    imported = run("import", "-", input=FILE)
    assert (imported.exit_code, imported.stderr) == (0, "")
    assert len(snapshot(engine)["allocations"]) == 500
    assert not_visible(engine) == set()


def test_inventories_are_found_although_they_were_analyzed_before_their_commit(
    app: Any, run: Run, engine: Engine
) -> None:
    """PostgreSQL then expects no inventory, so that it would read all of a class for each allocation."""
    truncate(engine)
    with engine.connect() as writer, engine.connect() as autovacuum:
        for statement in UNCOMMITTED:
            writer.execute(text(statement))
        autovacuum.execute(text("ANALYZE inventories"))
        autovacuum.commit()
    query = text("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'inventories_pkey'")

    def lookups() -> int:
        with engine.connect() as connection:
            return int(connection.scalar(query) or 0)

    before = lookups()
    assert run("import", "-", input=FILE).exit_code == 0
    wait_until(lambda: lookups() >= before + 500)


def test_a_dry_run_does_not_vacuum(app: Any, run: Run, engine: Engine) -> None:
    truncate(engine)
    assert run("import", "--dry-run", "-", input=FILE).exit_code == 0
    assert "resource_providers" in not_visible(engine)


def test_an_import_succeeds_without_the_vacuum(app: Any, engine: Engine, database_url: str, run: Run) -> None:
    # The transaction locks a table against VACUUM, but not against the import.
    url = make_url(database_url).update_query_dict({"options": "-c lock_timeout=100ms"})
    with engine.connect() as connection:
        connection.execute(text("LOCK TABLE aggregates IN SHARE UPDATE EXCLUSIVE MODE"))
        env = {"PLACEMENT_DATABASE_URL": url.render_as_string(hide_password=False)}
        imported = CliRunner().invoke(main, ["import", "-"], input=FILE, env=env)
    assert imported.exit_code == 0
    assert imported.stdout == "Imported 500 resource providers and 500 consumers\n"
    assert imported.stderr.startswith("The tables are not vacuumed: ")
    assert len(snapshot(engine)["allocations"]) == 500
