"""Claims into placement groups agree with the oracles: each placement is the best that the policy allows."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from placement_svc.domain.placement_groups import POLICIES
from tests.conftest import Api, LoadCloud, examples
from tests.support import oracle
from tests.support import placement_group_oracle as group_oracle
from tests.support.claims_oracle import consumer, root_name
from tests.support.cloud import Cloud, uuid_of
from tests.support.fits_oracle import claimed
from tests.support.oracle import Candidate, Request, candidates, read_candidate
from tests.support.small_batches import small_batches
from tests.support.strategies import scenarios, scenarios_of_pools, scenarios_with_pools

Domains = frozenset[str | None]

_numbers = count()


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the body of a placement group; the aggregates are named."""
    group: dict[str, Any] = {"policy": draw(st.sampled_from(POLICIES)), "max_per_domain": None}
    if group["policy"].endswith("anti-affinity"):
        group["max_per_domain"] = draw(st.integers(1, 2))
    aggregates = st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=3, unique=True)
    return {**group, "across": draw(st.just("root") | aggregates)}


def domains(group: Mapping[str, Any], cloud: Cloud, candidate: Candidate) -> Domains:
    """Return the domains of a consumer with this candidate."""
    providers = {
        provider.name: {
            "root": cloud.root(provider).name,
            "traits": provider.traits,
            "aggregates": provider.aggregates,
        }
        for provider in cloud.providers
    }
    roots = group_oracle.roots([name for name, _, _ in candidate.amounts], providers)
    return frozenset(group_oracle.domain(group, root, providers) for root in roots)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(40),
)
@given(
    scenario=scenarios() | scenarios_with_pools() | scenarios_of_pools(),
    group=policies(),
    numbers=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    reads_few=st.booleans(),
)
def test_claims_into_a_group_agree_with_the_oracle(
    api: Api,
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
    group: dict[str, Any],
    numbers: list[int],
    reads_few: bool,
) -> None:
    clean_database()
    cloud, drawn = scenario
    requests = [replace(request, ignore_consumer=frozenset()) for request in drawn]
    load_cloud(cloud)
    path = f"/placement_groups/{uuid_of('group')}"
    sent = {key: value for key, value in group.items() if value is not None}
    if group["across"] != "root":
        sent["across"] = [uuid_of(name) for name in group["across"]]
    assert api("PUT", path, sent).status_code == 201
    members: dict[str, Domains] = {}
    for number, request in zip(numbers, requests * len(numbers), strict=False):
        note(f"cloud: {cloud}\ngroup: {group}\nmembers: {members}\nrequest: {request}")
        consumers = [consumer(uuid_of(f"member {next(_numbers)}")) for _ in range(number)]
        body = {"request": request.query(), "consumers": consumers, "placement_group": uuid_of("group")}
        with small_batches() if reads_few else nullcontext():
            response = api("POST", "/claims", {**body, "min_count": 1})
        note(f"response: {response.json}")
        cloud = check(group, cloud, request, members, response, number)
        shown = api("GET", path).json
        assert [member["consumer_uuid"] for member in shown["members"]] == sorted(members)
        assert shown["violations"] == group_oracle.violations(group, members)
        if not group["policy"].startswith("soft-"):
            assert shown["violations"] == []


def check(
    group: Mapping[str, Any],
    cloud: Cloud,
    request: Request,
    members: dict[str, Domains],
    response: Any,
    number: int,
) -> Cloud:
    """Compare a response with the oracles; add its consumers to the members; return the cloud afterwards."""
    is_soft = group["policy"].startswith("soft-")
    if response.status_code == 200:
        body = response.json
    else:
        assert response.status_code == 409, response.json
        [error] = response.json["errors"]
        assert (error["code"], error["placeable"]) == ("placement_svc.no_candidates", 0)
        assert ("placement_group" in error) == bool(candidates(cloud, request))
        body = {"claims": [], "violations": []}
    against = []
    for claim in body["claims"]:
        others = list(members.values())
        entry = {key: claim[key] for key in ("allocations", "mappings")}
        candidate = read_candidate(cloud, request, entry)
        possible = {each: domains(group, cloud, each) for each in candidates(cloud, request)}
        assert claim["root"]["name"] == root_name(cloud, candidate)
        mine = possible[candidate]
        keeps = group_oracle.keeps(group, others, mine)
        if is_soft:
            best = min(group_oracle.rank(group, others, each) for each in possible.values())
            equals = [each for each, its in possible.items() if group_oracle.rank(group, others, its) == best]
            against += [] if keeps else [claim["consumer_uuid"]]
        elif group["policy"] == "affinity":
            # Another domain may come first, but take fewer of the consumers.
            equals = [each for each, its in possible.items() if its == mine]
            assert keeps
        else:
            kept = {its for its in possible.values() if group_oracle.keeps(group, others, its)}
            equals = [each for each, its in possible.items() if its in kept]
        assert candidate in equals
        if request.order_by != "random":
            order = {each: oracle.rank(cloud, request, each) for each in equals}
            assert order[candidate] == min(order.values())
        members[claim["consumer_uuid"]] = mine
        cloud = claimed(cloud, candidate.amounts)
    assert body["violations"] == against
    if len(body["claims"]) < number:
        left = {domains(group, cloud, each) for each in candidates(cloud, request)}
        if not is_soft:
            left = {mine for mine in left if group_oracle.keeps(group, list(members.values()), mine)}
        assert not left
    return cloud
