"""Compare random requests to all endpoints at random microversions, on a growing state."""

from collections.abc import Callable
from random import Random

import pytest

from tests.differential.conftest import SEEDS
from tests.differential.drawing import DRAW_FUNCTIONS
from tests.differential.known import Exchange, is_given_uuid
from tests.differential.services import Service, api_request
from tests.differential.values import RandomValues

REQUESTS = 3000
MAX_SHOWN = 10

FREQUENT = {
    *("create_provider", "replace_inventories", "replace_consumer_allocations", "replace_allocations"),
    *("reshape", "list_providers", "list_candidates"),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_requests(seed: int, reference: Service, ours: Service, clear: Callable[[], None]) -> None:
    values = RandomValues(Random(seed), reference)
    weights = [4 if draw.__name__ in FREQUENT else 1 for draw in DRAW_FUNCTIONS]
    unexplained = []
    for draw in values.random.choices(DRAW_FUNCTIONS, weights, k=REQUESTS):
        request = draw(values)
        exchange = Exchange.between(request, reference, ours)
        if exchange.unexplained:
            unexplained.append(str(exchange))
        _keep_states_equal(values, exchange, reference, ours)
        if len(unexplained) == MAX_SHOWN:
            break
    assert not unexplained, "\n\n".join(unexplained)


def _keep_states_equal(values: RandomValues, exchange: Exchange, reference: Service, ours: Service) -> None:
    """Remove what the request may have created with different uuids, or in only one of the services."""
    request = exchange.request
    if request.path == "/resource_providers" and request.method == "POST" and not is_given_uuid(request):
        for service, response in ((reference, exchange.reference), (ours, exchange.ours)):
            if "location" in response.headers:
                service.send(api_request("DELETE", response.headers["location"]))
    if request.method in ("PUT", "POST") and request.path.startswith(("/allocations", "/reshaper")):
        values.replace_unused_consumers(request)
