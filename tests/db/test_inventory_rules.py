"""The rules of an inventory are written once in SQL and once in Python: here they agree."""

import re
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

import placement_svc
from placement_svc.db.tables import CAPACITY, MAX_ALLOCATABLE
from placement_svc.domain.inventory import MAX_INTEGER, Inventory
from tests.conftest import examples

BATCH = 100
"""Cases of an example, which one statement computes."""

EDGES = (1, 2, 3, 4, 7, 8, 1023, 1024, MAX_INTEGER - 1, MAX_INTEGER)
amounts = st.sampled_from(EDGES) | st.integers(1, MAX_INTEGER)
requested = st.sampled_from((*EDGES, MAX_INTEGER + 1, 2**63 - 1)) | st.integers(1, 20)
ratios = st.sampled_from((0.0001, 0.1, 1 / 3, 0.7, 1.0, 1.1, 1.5, 16.0, 1e9, 1e18, 3.4e38)) | st.floats(
    min_value=0, exclude_min=True, max_value=3.4e38
)
units = st.tuples(amounts, amounts, amounts) | st.tuples(*[st.integers(1, 9)] * 3)

UNITS = """
    SELECT fits_units(amount, min_unit, max_unit, step_size)
      FROM unnest(CAST(:amount AS bigint[]), CAST(:min_unit AS int[]), CAST(:max_unit AS int[]),
                  CAST(:step_size AS int[]))
           WITH ORDINALITY AS drawn (amount, min_unit, max_unit, step_size, number)
     ORDER BY number
"""

FORMULAS = f"""
    SELECT {CAPACITY}, {MAX_ALLOCATABLE}
      FROM unnest(CAST(:total AS int[]), CAST(:reserved AS int[]), CAST(:allocation_ratio AS float8[]),
                  CAST(:used AS bigint[]), CAST(:max_unit AS int[]))
           WITH ORDINALITY AS drawn (total, reserved, allocation_ratio, used, max_unit, number)
     ORDER BY number
"""


def compute(engine: Engine, query: str, names: str, cases: list[Any]) -> list[Any]:
    """Return the rows that `query` computes of cases, whose values have these names."""
    with engine.connect() as connection:
        columns = map(list, zip(*cases, strict=True))
        return list(connection.execute(text(query), dict(zip(names.split(), columns, strict=True))))


@settings(deadline=None, max_examples=examples(50))
@given(cases=st.lists(st.tuples(requested, units), min_size=1, max_size=BATCH))
def test_units_are_checked_alike(engine: Engine, cases: list[tuple[int, tuple[int, int, int]]]) -> None:
    in_sql = compute(
        engine, UNITS, "amount min_unit max_unit step_size", [(amount, *units) for amount, units in cases]
    )
    in_python = [
        Inventory(total=1, min_unit=min_unit, max_unit=max_unit, step_size=step_size).fits_units(amount)
        for amount, (min_unit, max_unit, step_size) in cases
    ]
    assert [fits for (fits,) in in_sql] == in_python


@settings(deadline=None, max_examples=examples(50))
@given(cases=st.lists(st.tuples(amounts, st.just(0) | amounts, ratios), min_size=1, max_size=BATCH))
def test_capacity_is_computed_alike(engine: Engine, cases: list[tuple[int, int, float]]) -> None:
    in_sql = compute(
        engine,
        FORMULAS,
        "total reserved allocation_ratio used max_unit",
        [(*case, 3, MAX_INTEGER) for case in cases],
    )
    in_python = [
        Inventory(total, reserved, allocation_ratio=ratio).capacity for total, reserved, ratio in cases
    ]
    assert [capacity for capacity, _ in in_sql] == in_python
    assert [most for _, most in in_sql] == [min(capacity - 3, MAX_INTEGER) for capacity in in_python]


ADD_HOSTS = """
    INSERT INTO resource_classes (id, name) VALUES (0, 'VCPU') ON CONFLICT DO NOTHING;
    INSERT INTO resource_providers (id, uuid, name, root_id, path)
    SELECT -id, gen_random_uuid(), gen_random_uuid(), -id, ARRAY[-id] FROM generate_series(1, 5000) AS id;
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT -id, -id, 0, id, 0, 1, id, 1, 1 FROM generate_series(1, 5000) AS id;
    ANALYZE inventories
"""


def test_unit_rule_is_inlined_and_uses_the_index(engine: Engine) -> None:
    query = """
        EXPLAIN SELECT FROM inventories
         WHERE resource_class_id = 0 AND fits_units(4990, min_unit, max_allocatable, step_size)
    """
    with engine.connect() as connection:
        connection.execute(text(ADD_HOSTS))
        plan = "\n".join(connection.scalars(text(query)))
        connection.rollback()
    assert "fits_units" not in plan
    assert "inventories_resource_class_id_max_allocatable_idx" in plan
    assert "Index Cond: ((resource_class_id = 0) AND (max_allocatable >= '4990'::bigint))" in plan


def test_rules_are_written_once() -> None:
    package = Path(placement_svc.__file__).parent
    for rule, places in {
        r"% (\w+\.)*step_size": ["db/sql/fits_units.sql", "domain/inventory.py"],
        r"\* (\w+\.)*allocation_ratio": ["db/tables.py", "domain/inventory.py"],
    }.items():
        found = [path for path in package.rglob("*.*") if path.suffix in (".py", ".sql")]
        found = [path for path in found if re.search(rule, path.read_text())]
        assert sorted(str(path.relative_to(package)) for path in found) == places
