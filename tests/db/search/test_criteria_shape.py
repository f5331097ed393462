"""Searches that differ only in ids and amounts have one statement, with the values of each."""

import re
from typing import Any

import pytest
from hypothesis import given, settings

from placement_svc.db.search import anchor_statement
from placement_svc.db.search.anchor_statement import AnchorStatement
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.criteria_shape import FIRST_PLACEHOLDER, has_only_placeholders, with_numbers
from placement_svc.db.search.root_selection import RootSelection, Strategy
from tests.conftest import Api, LoadCloud, examples
from tests.db.search.test_candidates_property import NO_DEADLINE, Clean, compare
from tests.support.cloud import Cloud, read, uuid_of
from tests.support.oracle import Request
from tests.support.strategies import NEWEST, scenarios

NUMBER = re.compile(r"\b[0-9]+\b")
NAME_NUMBER = re.compile(r"_[0-9]+\b")
SELECTIONS = [
    RootSelection(strategy=strategy, uses_amounts=is_further, checks_rules=is_further)
    for strategy in (Strategy.LOOKUP, Strategy.SCAN)
    for is_further in (False, True)
]
"""The first batch and further ones, by both strategies."""


def clear_caches() -> None:
    anchor_statement._cached_statement.cache_clear()
    anchor_statement._cached_shape.cache_clear()


def described(statement: AnchorStatement) -> Any:
    """Return what a statement has apart from the order of its numbers, which may be that of placeholders.

    SQLAlchemy numbers names by its objects, which may be cached.
    """
    text = NAME_NUMBER.sub("_number", statement.query.with_literals({}))
    numbers = sorted(NUMBER.findall(text))
    return NUMBER.sub("number", text), numbers, statement.id_list_of_demand, statement.serving_sets


@settings(NO_DEADLINE, max_examples=examples(40))
@given(scenario=scenarios(NEWEST))
def test_statement_of_a_shape_is_that_of_the_search(
    api: Api,
    clean_database: Clean,
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
) -> None:
    def find(criteria: SearchCriteria, supplies: Any, selection: RootSelection) -> AnchorStatement:
        for each in SELECTIONS:
            expected = anchor_statement._build_statement(criteria, supplies, each)
            found = anchor_statement._find_statement(criteria, supplies, each)
            assert described(found) == described(expected)
        return anchor_statement._find_statement(criteria, supplies, selection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anchor_statement, "_cached_statement", find)
        compare(api, clean_database, load_cloud, *scenario)


X, Y = uuid_of("X"), uuid_of("Y")


def test_searches_that_differ_in_numbers_are_built_once(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("a{VCPU8 DISK_GB8}#HW_CPU_X86_AVX@X; b{VCPU4 DISK_GB8}#HW_CPU_X86_AVX2@Y"))
    built: list[SearchCriteria] = []
    build = anchor_statement._build_statement

    def count(criteria: SearchCriteria, *others: Any) -> AnchorStatement:
        built.append(criteria)
        return build(criteria, *others)

    monkeypatch.setattr(anchor_statement, "_build_statement", count)
    clear_caches()

    def roots(amount: int, trait: str, aggregate: str) -> list[list[str]]:
        query = f"resources=DISK_GB:1&resources_A=VCPU:{amount}&required_A=HW_CPU_X86_{trait}"
        response = api("GET", f"/allocation_candidates?{query}&member_of={aggregate}&limit=5")
        return [list(each["allocations"]) for each in response.json["allocation_requests"]]

    a, b = [uuid_of("a")], [uuid_of("b")]
    assert roots(2, "AVX", X) == [a]
    assert roots(3, "AVX2", Y) == [b]
    assert roots(4, "AVX", X) == [a]
    assert roots(5, "AVX2", Y) == []
    assert roots(3, "AVX", Y) == []
    assert len(built) <= 2


@pytest.mark.parametrize("amount", [FIRST_PLACEHOLDER - 1, FIRST_PLACEHOLDER, FIRST_PLACEHOLDER + 1, 2**31])
def test_large_amounts(api: Api, load_cloud: LoadCloud, amount: int) -> None:
    load_cloud(read(f"a{{VCPU{FIRST_PLACEHOLDER} DISK_GB8}}"))
    query = f"/allocation_candidates?resources=VCPU:{amount}&resources_A=DISK_GB:2&group_policy=none"
    for _ in range(2):
        found = api("GET", query).json["allocation_requests"]
        assert len(found) == (amount <= FIRST_PLACEHOLDER)


def test_groups_that_add_amounts(api: Api, load_cloud: LoadCloud) -> None:
    """The sum of two amounts is no placeholder, so these searches are built one by one."""
    load_cloud(read("; ".join(f"h{number}{{VCPU{number + 4}}}" for number in range(6))))
    for first, second in ((1, 2), (2, 3), (3, 5), (4, 4), (5, 5)):
        query = f"resources_A=VCPU:{first}&resources_B=VCPU:{second}&group_policy=none&limit=10"
        found = api("GET", f"/allocation_candidates?{query}").json["allocation_requests"]
        assert len(found) == min(6, 6 + 4 - first - second)


def test_what_cannot_be_replaced() -> None:
    numbers = [7, 8]
    first, second, third = range(FIRST_PLACEHOLDER, FIRST_PLACEHOLDER + 3)
    assert with_numbers([first, 5, second], numbers) == [7, 5, 8]
    assert [with_numbers(value, numbers) for value in (second, 5, None, True, "5")] == [8, 5, None, True, "5"]
    assert has_only_placeholders("SELECT %(a)s", [first, [second, 1], None, "{1,2}"], 2)
    for value in (third, first + second, [third], f"{{{first}}}", (first,)):
        assert not has_only_placeholders("SELECT %(a)s", [value], 2)
    assert not has_only_placeholders(f"SELECT {first}", [], 2)
