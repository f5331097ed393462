"""`can_split`: several providers of one tree supply one class (`docs/spec/extensions.md 2.8`)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings

from tests.conftest import LoadCloud, examples
from tests.db.search.test_candidates_property import NO_DEADLINE, compare
from tests.support.cloud import Cloud, read
from tests.support.oracle import Group, Request, response_errors
from tests.support.strategies import NEWEST, scenarios
from tests.support.versions import EXTENDED

Api = Callable[..., Any]

NUMA = "h; n0<h{VCPU4}; n1<h{VCPU4}; n2<h{VCPU2}"
TWO_CLASSES = "h; n0<h{VCPU4 MEMORY_MB8}#HW_NUMA_ROOT; n1<h{VCPU4 MEMORY_MB2}; n2<h{VCPU2 MEMORY_MB4}"
STEPS = "h; n0<h{VCPU4 step2}; n1<h{VCPU9 max6 step3}; n2<h{VCPU12 max5}; n3<h{VCPU4 min4}"
LARGE = 2**31 - 1


class Case(NamedTuple):
    """A cloud, a request, and the number of its candidates."""

    cloud: str
    request: Request
    count: int


def split(resources: dict[str, int], *others: Group, **keys: Any) -> Request:
    filters = {key: keys.pop(key) for key in ("required", "member_of", "in_tree") if key in keys}
    return Request(
        (Group("", resources, **filters), *others),
        can_split=frozenset(resources),
        group_policy="none",
        **keys,
    )


CASES = {
    "two of three": Case(NUMA, split({"VCPU": 6}), 3),
    "one provider suffices": Case(NUMA, split({"VCPU": 4}), 2),
    "all three": Case(NUMA, split({"VCPU": 9}), 1),
    "too much": Case(NUMA, split({"VCPU": 11}), 0),
    "required trait of any supplier": Case(
        TWO_CLASSES, split({"VCPU": 6}, required=(frozenset(["HW_NUMA_ROOT"]),)), 2
    ),
    "classes are split independently": Case(TWO_CLASSES, split({"VCPU": 6, "MEMORY_MB": 9}), 3 * 2),
    "only one class is split": Case(TWO_CLASSES, split({"VCPU": 6, "MEMORY_MB": 8}), 3),
    "a provider with the amount that lacks the trait": Case(
        "h{VCPU8}; n0<h{VCPU4}#HW_NUMA_ROOT; n1<h{VCPU4}",
        split({"VCPU": 8}, required=(frozenset(["HW_NUMA_ROOT"]),)),
        0,
    ),
    "a sharing provider with the amount": Case(
        "h@A; n0<h{VCPU4}; n1<h{VCPU4}; s{VCPU8}$@A", split({"VCPU": 8}), 1
    ),
    "a sharing provider with a part": Case("h@A; n0<h{VCPU4}; s{VCPU4}$@A", split({"VCPU": 8}), 0),
    "a sharing provider of the tree": Case("h; n0<h{VCPU4}; s<h{VCPU4}$@A", split({"VCPU": 8}), 1),
    "step sizes of 2 and 3": Case(STEPS, split({"VCPU": 12}), 1),
    "min_unit": Case(STEPS, split({"VCPU": 7}), 1),
    "used amounts": Case("h; n0<h{VCPU4 used1}; n1<h{VCPU4 used2}", split({"VCPU": 5}), 1),
    "an overcommitted provider": Case("h; n0<h{VCPU4 used5}; n1<h{VCPU4}", split({"VCPU": 5}), 0),
    "amounts beyond 32 bits": Case(
        f"h; n0<h{{VCPU{LARGE}}}; n1<h{{VCPU{LARGE}}}; n2<h{{VCPU5}}", split({"VCPU": 2 * LARGE}), 1
    ),
    "an amount that no cloud has": Case(NUMA, split({"VCPU": 10**30}), 0),
    "sums with another group": Case(NUMA, split({"VCPU": 6}, Group("_A", {"VCPU": 1})), 4),
    "spread": Case(NUMA + "; g{VCPU7}", split({"VCPU": 6}, order_by="spread:VCPU"), 4),
    "pack": Case(NUMA + "; g{VCPU7}", split({"VCPU": 6}, order_by="pack:VCPU"), 4),
    "pack with a limit": Case(NUMA + "; g{VCPU7}", split({"VCPU": 6}, order_by="pack:VCPU", limit=1), 1),
    "preferred": Case(
        TWO_CLASSES, split({"VCPU": 6}, preferred=frozenset(["HW_NUMA_ROOT"]), order_by="spread:VCPU"), 3
    ),
    "ignored consumer": Case(
        "h; n0<h{VCPU4 used4}; n1<h{VCPU4}", split({"VCPU": 8}, ignore_consumer=frozenset(["consumer"])), 1
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_search_returns_the_splits(api: Api, load_cloud: LoadCloud, case: str) -> None:
    text, request, count = CASES[case]
    cloud = read(text)
    load_cloud(cloud)
    response = api("GET", f"/allocation_candidates?{request.query()}", version=request.header)
    assert response.status_code == 200, response.json
    assert response_errors(cloud, request, response.json) == []
    assert len(response.json["allocation_requests"]) == count


@settings(NO_DEADLINE, max_examples=examples(40))
@given(scenario=scenarios(NEWEST).filter(lambda drawn: any(each.can_split for each in drawn[1])))
def test_splits_agree_with_oracle(
    api: Api,
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
) -> None:
    cloud, requests = scenario
    compare(api, clean_database, load_cloud, cloud, [each for each in requests if each.can_split])


def test_limit_bounds_the_work_of_many_splits(api: Api, load_cloud: LoadCloud) -> None:
    """Of 60 providers, 30 can be chosen in 10 ** 17 ways."""
    cloud = read("h; " + "; ".join(f"n{number:02}<h{{VCPU1}}" for number in range(60)))
    load_cloud(cloud)
    path = "/allocation_candidates?resources=VCPU:30&can_split=VCPU&limit=50"
    response = api("GET", path, version=EXTENDED)
    assert response.status_code == 200
    entries = response.json["allocation_requests"]
    assert len({frozenset(entry["allocations"]) for entry in entries}) == 50
    assert all(len(entry["allocations"]) == 30 for entry in entries)
