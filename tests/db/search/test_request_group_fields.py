"""Every field of a request group reaches the SQL of both consumers, and the parser of both query strings."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert
from sqlalchemy.dialects import postgresql

from placement_svc.db import providers
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.criteria_builder import resolve_criteria
from placement_svc.db.search.suppliers import supplier_query
from placement_svc.db.tables import aggregates
from placement_svc.domain.groups import CandidatesRequest, Membership, RequestGroup
from placement_svc.schemas.allocation_candidates import GROUP_PARSERS
from placement_svc.schemas.candidates_query import GROUP_KEYS

A_UUID = "aaaaaaaa-0000-4000-8000-000000000000"
SAMPLES: dict[str, list[Any]] = {
    "resources": [{"VCPU": 1, "MEMORY_MB": 2}],
    "required": [
        Membership((frozenset({"HW_CPU_X86_AVX"}),)),
        Membership(forbidden=frozenset({"HW_CPU_X86_AVX"})),
    ],
    "member_of": [Membership((frozenset({A_UUID}),)), Membership(forbidden=frozenset({A_UUID}))],
    "in_tree": [A_UUID],
    "not_in_tree": [frozenset({A_UUID})],
}
"""For each field, values that exclude providers; a new field needs an entry, and the code that handles it."""

each_group = pytest.mark.parametrize(
    "group", [RequestGroup("", {"VCPU": 1}), RequestGroup("_A", {"VCPU": 1})], ids=["unsuffixed", "suffixed"]
)
each_value = pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field, values in SAMPLES.items() for value in values],
)


@pytest.fixture
def connection(engine: Engine, clean_database: Callable[[], None]) -> Any:
    with engine.begin() as connection:
        connection.execute(insert(aggregates).values(uuid=A_UUID))
        providers.create(connection, A_UUID, "a")
        yield connection


def sql(query: Any) -> str:
    return str(query.compile(dialect=postgresql.dialect(), compile_kwargs={"render_postcompile": True}))


def test_every_field_has_samples() -> None:
    assert {field.name for field in fields(RequestGroup)} == {"suffix", *SAMPLES}


def test_every_key_of_a_group_has_a_parser_and_a_field() -> None:
    # The key in_tree has two fields: one for the required tree, and one for excluded trees.
    assert set(GROUP_PARSERS) == set(GROUP_KEYS) == set(SAMPLES) - {"not_in_tree"}


@each_group
@each_value
def test_candidates_depend_on_field(
    connection: Connection, group: RequestGroup, field: str, value: Any
) -> None:
    def conditions(group: RequestGroup) -> list[Any]:
        criteria: SearchCriteria = resolve_criteria(
            connection, CandidatesRequest((group,)), one_provider_per_tree=False
        )
        queries = [supplier_query(each).query for each in criteria.by_demand]
        # More than one would be a cross join.
        assert {len(query.get_final_froms()) for query in queries} == {1}
        # The required traits of the unsuffixed group concern all its suppliers together.
        return [*map(sql, queries), criteria.rules.unsuffixed_required]

    assert conditions(replace(group, **{field: value})) != conditions(group)


@each_group
@each_value
def test_list_of_providers_depends_on_field(
    connection: Connection, group: RequestGroup, field: str, value: Any
) -> None:
    def condition_sql(group: RequestGroup) -> list[str]:
        return [sql(condition) for condition, _ in providers._group_conditions(connection, group)]

    assert condition_sql(replace(group, **{field: value})) != condition_sql(group)
