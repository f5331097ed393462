"""The search and the oracle agree on random clouds; `pytest --hypothesis-profile=deep` draws many more."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, example, given, note, settings

from tests.conftest import LoadCloud, examples
from tests.support.cloud import Cloud, read
from tests.support.oracle import Group, Request, response_errors
from tests.support.strategies import NEWEST, OLDER, scenarios

NO_DEADLINE = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

RARELY_DRAWN = (
    read("a{VCPU8}@A,B; a1<a{VCPU8}@C; b{VCPU8 max3 DISK_GB8}$@A; c@B; c1<c{VCPU8 DISK_GB8}"),
    [
        Request((Group("", {"VCPU": 1, "DISK_GB": 1}, member_of=(frozenset("B"),)),)),
        Request((Group("", {"VCPU": 1}, member_of=(frozenset("A"), frozenset("C"))),)),
        Request((Group("", {"VCPU": 1}, not_member_of=frozenset("B")),)),
        Request((Group("", {"DISK_GB": 1}, in_tree="b"), Group("1", {"VCPU": 4}))),
        Request((Group("1", {"DISK_GB": 1}, in_tree="b"), Group("2", {"VCPU": 4})), group_policy="none"),
        Request((Group("1", {"VCPU": 2}), Group("2", {"VCPU": 2})), group_policy="none"),
    ],
)

ROOT_AND_A_MEMBER = (
    read(
        "a{VCPU8 DISK_GB8}@A,B; b{VCPU8 DISK_GB8}; b1<b{VCPU8 DISK_GB8}@A; c{VCPU8 DISK_GB8}@B; c1<c{VCPU8}@A"
    ),
    [
        Request((Group("", {"VCPU": 1}, member_of=(frozenset("A"),)),)),
        Request((Group("", {"VCPU": 1, "DISK_GB": 1}, member_of=(frozenset("A"),)),)),
        Request((Group("", {"VCPU": 1, "DISK_GB": 1}, member_of=(frozenset("A"), frozenset("B"))),)),
        Request((Group("", {"VCPU": 1}, member_of=(frozenset("AB"),)),)),
        Request((Group("", {"VCPU": 1}, not_member_of=frozenset("A")),)),
        Request((Group("", {"VCPU": 1}, member_of=(frozenset("A"),)), Group("1", {"DISK_GB": 1}))),
    ],
)
"""Roots that are no member of an aggregate, with a child that is one, and a root that is one."""

Api = Callable[..., Any]
Clean = Callable[[], None]


@settings(NO_DEADLINE, max_examples=examples(80))
@example(scenario=RARELY_DRAWN)
@example(scenario=ROOT_AND_A_MEMBER)
@given(scenario=scenarios(NEWEST))
def test_search_agrees_with_oracle(
    api: Api, clean_database: Clean, load_cloud: LoadCloud, scenario: tuple[Cloud, list[Request]]
) -> None:
    compare(api, clean_database, load_cloud, *scenario)


@settings(NO_DEADLINE, max_examples=examples(40))
@given(scenario=scenarios(OLDER))
def test_search_agrees_with_oracle_at_older_microversions(
    api: Api, clean_database: Clean, load_cloud: LoadCloud, scenario: tuple[Cloud, list[Request]]
) -> None:
    compare(api, clean_database, load_cloud, *scenario)


def compare(
    api: Api, clean_database: Clean, load_cloud: LoadCloud, cloud: Cloud, requests: list[Request]
) -> None:
    clean_database()
    load_cloud(cloud)
    for request in requests:
        response = api("GET", f"/allocation_candidates?{request.query()}", version=request.header)
        note(f"cloud: {cloud}\nrequest: {request.version} {request}")
        assert response.status_code == 200, response.json
        assert response_errors(cloud, request, response.json) == []
