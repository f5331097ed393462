"""Compare the candidates of random small clouds at all microversions.

A known defect of the reference may explain a difference, so this service is compared with the oracle as well.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.differential.known import Exchange
from tests.differential.services import Service, api_request
from tests.support.cloud import Cloud, load, uuid_of
from tests.support.oracle import Request, response_errors
from tests.support.query_keys import without_suffix
from tests.support.strategies import NEWEST, OLDER, one_in_four, scenarios

NO_DEADLINE = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@settings(NO_DEADLINE, max_examples=examples(100))
@given(
    scenario=st.booleans().flatmap(lambda new: scenarios(NEWEST if new else OLDER, may_be_extended=False)),
    data=st.data(),
)
def test_random_clouds(
    reference: Service,
    ours: Service,
    clear: Callable[[], None],
    scenario: tuple[Cloud, list[Request]],
    data: st.DataObject,
) -> None:
    cloud, requests = scenario
    clear()
    for service in (reference, ours):

        def send(
            method: str, path: str, json: Any = None, headers: Any = None, service: Service = service
        ) -> tuple[int, Any]:
            response = service.send(api_request(method, path, json))
            return response.status, response.json

        load(cloud, send)
    for request in requests:
        query = data.draw(queries(request))
        exchange = Exchange.between(
            api_request("GET", f"/allocation_candidates?{query}", version=request.version), reference, ours
        )
        note(f"cloud: {cloud}\n{exchange}")
        assert not exchange.unexplained
        assert response_errors(cloud, request, exchange.ours.json) == []


@st.composite
def queries(draw: st.DrawFn, request: Request) -> str:
    """Draw a query string of the request, in plain or unusual form (`docs/spec/candidates.md 2.2`, `2.3`)."""
    plain = draw(st.permutations(parse_qsl(request.query())))
    if draw(st.booleans()):
        return urlencode(plain)
    unusual = [pair for key, value in plain for pair in draw(_unusual_pairs(request, key, value))]
    return draw(st.sampled_from("&;")).join(urlencode([pair]) for pair in unusual)


@st.composite
def _unusual_pairs(draw: st.DrawFn, request: Request, key: str, value: str) -> list[tuple[str, str]]:
    """Draw pairs with the meaning of one pair; of a repeated key, the first or the last value counts."""
    if not one_in_four(draw):
        return [(key, value)]
    name, (first, *others) = without_suffix(key), value.split(",")
    if name == "resources":
        resource, _, amount = first.partition(":")
        unusual = draw(
            st.sampled_from([f"{resource}:+{amount}", f"{resource}: 0{amount} ", f"{resource}:1_000,{first}"])
        )
        return [(key, f"{resource}:77"), (key, ",".join([unusual, *others]))]
    if name == "in_tree":
        return [(key, uuid_of("nowhere")), (key, f" {value} ")]
    if name in ("limit", "group_policy"):
        return [(key, value), (key, "1" if key == "limit" else "isolate")]
    if name == "same_subtree":
        return [(key, f" {value}, {first} "), (key, value)]
    if name == "member_of":
        uuids = value.removeprefix("!").removeprefix("in:")
        return [(key, f"{'!' * value.startswith('!')}in:{uuids},{uuids}")]
    assert name in ("required", "root_required"), f"no unusual form of {key} is defined"
    if request.since("1.39") and name != "root_required" and not value.startswith("in:"):
        return [(key, trait.replace("!", "!!!")) for trait in (first, *others)]
    blank = (key, " , ".join([first, *others, *others]))
    return [blank] if request.since("1.39") or name == "root_required" else [(key, "NOPE"), blank]
