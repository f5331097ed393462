"""Requests with many conditions: the same answers as with few, from statements that do not grow with them."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from sqlalchemy import Engine

from placement_svc.db import providers
from placement_svc.db.search import (
    anchor_statement,
    criteria_builder,
    sharing,
    suppliers,
    tree_conditions,
)
from placement_svc.db.search.ordered import sets
from tests.conftest import ADMIN, LoadCloud, NewApp, examples
from tests.db.search.test_candidates_property import NO_DEADLINE, compare
from tests.support.cloud import Cloud, read, uuid_of
from tests.support.oracle import Request
from tests.support.statements import sent_statements
from tests.support.strategies import NEWEST, scenarios
from tests.support.versions import EXTENDED

Api = Callable[..., Any]
Clean = Callable[[], None]
MAX_LENGTH = 60_000
"""Characters of a statement, whatever the number of conditions: 16 demands have subqueries of their own."""

TEXT_VALUE = re.compile("'[^']*'")
"""A text in a statement; that of the demands has them all."""


def clear_caches() -> None:
    suppliers._cached_query.cache_clear()
    anchor_statement._cached_statement.cache_clear()
    anchor_statement._cached_shape.cache_clear()
    sets._cached_statement.cache_clear()


@pytest.fixture
def no_single_conditions() -> Iterator[None]:
    """Without single conditions and joins, every condition is one on arrays."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (providers, suppliers, tree_conditions, "placement_svc.db.filters"):
            target = f"{getattr(module, '__name__', module)}.MAX_SINGLE_CONDITIONS"
            patch.setattr(target, 0 if module is not tree_conditions else 1)
        for module in (providers, "placement_svc.db.filters"):
            patch.setattr(f"{getattr(module, '__name__', module)}.MAX_SINGLE_SETS", 0)
        patch.setattr(criteria_builder, "MAX_JOINS", 0)
        clear_caches()
        yield
    clear_caches()


@pytest.fixture
def demands_as_rows(no_single_conditions: None) -> Iterator[None]:
    """All demands are rows of a table."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (anchor_statement, sharing):
            patch.setattr(module, "MAX_SUBQUERY_DEMANDS", 0)
        yield


@settings(NO_DEADLINE, max_examples=examples(25))
@given(scenario=scenarios(NEWEST))
@pytest.mark.usefixtures("no_single_conditions")
def test_search_by_arrays_agrees_with_oracle(
    api: Api, clean_database: Clean, load_cloud: LoadCloud, scenario: tuple[Cloud, list[Request]]
) -> None:
    compare(api, clean_database, load_cloud, *scenario)


@settings(NO_DEADLINE, max_examples=examples(40))
@given(scenario=scenarios(NEWEST))
@pytest.mark.usefixtures("demands_as_rows")
def test_search_by_rows_agrees_with_oracle(
    api: Api, clean_database: Clean, load_cloud: LoadCloud, scenario: tuple[Cloud, list[Request]]
) -> None:
    compare(api, clean_database, load_cloud, *scenario)


CLOUD = read(
    "a{VCPU8 DISK_GB8}#HW_CPU_X86_AVX,HW_CPU_X86_AVX2@A,B,C; a1<a{MEMORY_MB8}@B;"
    "b{VCPU4}#HW_CPU_X86_AVX2,HW_CPU_X86_SSE@B; c{DISK_GB8}#HW_CPU_X86_AVX@A"
)
LISTINGS = [
    [("member_of", "A")],
    [("member_of", "A"), ("member_of", "B")],
    [("member_of", "in:A,C"), ("member_of", "in:B,X")],
    [("member_of", "in:X,Y"), ("member_of", "B")],
    [("member_of", "in:A,B"), ("member_of", "!C")],
    [("required", "in:HW_CPU_X86_AVX,HW_CPU_X86_SSE"), ("required", "in:HW_CPU_X86_AVX2,HW_CPU_X86_SSE")],
    [("required", "HW_CPU_X86_AVX,HW_CPU_X86_AVX2"), ("required", "in:HW_CPU_X86_AVX2,HW_CPU_X86_SSE")],
    [("resources", "VCPU:5")],
    [("resources", "VCPU:4,DISK_GB:8")],
    [("resources", "VCPU:4,DISK_GB:9999999999")],
]


def listing(pairs: list[tuple[str, str]]) -> str:
    query = []
    for key, value in pairs:
        if key == "member_of":
            prefix = "in:" if value.startswith("in:") else "!" if value.startswith("!") else ""
            value = prefix + ",".join(map(uuid_of, value.removeprefix(prefix).split(",")))
        query.append(f"{key}={value}")
    return f"/resource_providers?{'&'.join(query)}"


def test_listing_by_arrays_agrees(api: Api, load_cloud: LoadCloud, request: pytest.FixtureRequest) -> None:
    load_cloud(CLOUD)
    usual = [api("GET", listing(pairs)).json for pairs in LISTINGS]
    assert len({str(body) for body in usual}) > 4
    request.getfixturevalue("no_single_conditions")
    assert [api("GET", listing(pairs)).json for pairs in LISTINGS] == usual


def members(count: int, key: str = "member_of") -> str:
    return "&".join(f"{key}={uuid_of(str(number))}" for number in range(count))


CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB", "PCPU", "NUMA_SOCKET", "NUMA_CORE", "NUMA_THREAD", "VGPU"]


def groups(count: int, classes: int) -> str:
    resources = (
        f"resources_{n}={','.join(f'{name}:{n + 1}' for name in CLASSES[:classes])}" for n in range(count)
    )
    return f"{'&'.join(resources)}&group_policy=none"


@pytest.mark.parametrize(
    "query",
    [
        f"resource_providers?{members(1000)}",
        f"allocation_candidates?resources=VCPU:1&{members(1000)}",
        f"allocation_candidates?resources_1=VCPU:1&{members(1000, 'member_of_1')}",
        f"allocation_candidates?{groups(400, 8)}",
        f"allocation_candidates?{groups(500, 1)}&same_subtree={','.join(f'_{n}' for n in range(500))}",
        f"allocation_candidates?limit=1&{groups(16, 8)}",
    ],
    ids=["listing", "unsuffixed", "suffixed", "groups", "same_subtree", "classes"],
)
def test_statements_do_not_grow_with_the_conditions(
    app: Any, api: Api, load_cloud: LoadCloud, query: str
) -> None:
    load_cloud(CLOUD)
    with sent_statements(app.extensions["database"].engine) as sent:
        assert api("GET", f"/{query}").status_code == 200
    assert max(len(TEXT_VALUE.sub("", statement.text)) for statement in sent) < MAX_LENGTH
    assert len(sent) < 10


MEMBERS = "ABCDEFGHI"


def subtrees(count: int) -> str:
    return "&".join(f"same_subtree=_{a},_{b}" for a in range(count) for b in range(a))


@pytest.mark.parametrize(
    "query",
    [
        *(f"allocation_candidates?{groups(count, 8)}&{subtrees(count)}" for count in (3, 4, 10)),
        *(
            f"resource_providers?resources={','.join(f'{name}:1' for name in CLASSES)}"
            f"&{'&'.join(f'member_of={uuid_of(name)}' for name in MEMBERS[:count])}"
            for count in (3, 7, 8)
        ),
        *(
            f"allocation_candidates?{groups(count, 8)}"
            f"&{'&'.join(f'root_member_of={uuid_of(name)}' for name in MEMBERS)}"
            for count in (1, 4)
        ),
        "allocation_candidates?resources=VCPU:1&resources_0=VCPU:1&required_0=!HW_CPU_X86_AVX&group_policy=isolate&"
        + "&".join(f"member_of_0={uuid_of(name)}" for name in MEMBERS),
    ],
    ids=[
        *("groups 3", "groups 4", "groups 10", "listing 3", "listing 7", "listing 8"),
        *("root_member_of 1", "root_member_of 4", "member_of"),
    ],
)
def test_memory_for_planning_is_bounded(
    new_app: NewApp, load_cloud: LoadCloud, engine: Engine, query: str
) -> None:
    if (engine.dialect.server_version_info or ()) < (17,):
        pytest.skip("EXPLAIN (MEMORY) needs PostgreSQL 17")
    load_cloud(read(f"a{{VCPU8}}@{','.join(MEMBERS)}; s{{VCPU8}}$@{','.join(MEMBERS)}"))
    # The texts, and not those of EXECUTE in another session.
    app = new_app(prepared_statements=False)
    headers = ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"}
    with sent_statements(app.extensions["database"].engine) as sent:
        assert app.test_client().get(f"/{query}", headers=headers).status_code == 200
    with engine.connect() as connection:
        for statement in sent:
            command = f"EXPLAIN (MEMORY, FORMAT JSON) {statement.text}"
            [plan] = connection.exec_driver_sql(command, statement.parameters).scalar_one()
            assert plan["Planning"]["Memory Used"] < 15_000, statement.text
