"""Small nasty clouds, and requests for candidates that nearly fit them, at all microversions."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.cloud import Cloud, load
from tests.conftest import examples
from tests.differential.known import Exchange
from tests.differential.services import Service, ask
from tests.oracle import Request
from tests.strategies import NEWEST, OLDER, scenarios

UNHURRIED = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@settings(UNHURRIED, max_examples=examples(100))
@given(scenario=st.booleans().flatmap(lambda new: scenarios(NEWEST if new else OLDER)))
def test_random_clouds(
    reference: Service, ours: Service, clear: Callable[[], None], scenario: tuple[Cloud, list[Request]]
) -> None:
    cloud, requests = scenario
    clear()
    for service in (reference, ours):

        def send(
            method: str, path: str, json: Any = None, headers: Any = None, service: Service = service
        ) -> tuple[int, Any]:
            answer = service.answer(ask(method, path, json))
            return answer.status, answer.json

        load(cloud, send)
    for asked in requests:
        request = ask("GET", f"/allocation_candidates?{asked.query()}", version=asked.version)
        exchange = Exchange.of(request, reference, ours)
        note(f"cloud: {cloud}\n{exchange}")
        assert not exchange.unexplained
