"""Random requests of all endpoints at random microversions, while the state of both services grows."""

from collections.abc import Callable
from random import Random

import pytest

from tests.differential.conftest import SEEDS
from tests.differential.drawing import DRAWS, World
from tests.differential.known import Exchange, is_given_uuid
from tests.differential.services import Service, ask

REQUESTS = 3000
MOST_SHOWN = 10

OFTEN = {
    *("create_provider", "replace_inventories", "replace_consumer_allocations", "replace_allocations"),
    *("reshape", "list_providers", "list_candidates"),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_requests(seed: int, reference: Service, ours: Service, clear: Callable[[], None]) -> None:
    world = World(Random(seed), reference)
    weights = [4 if draw.__name__ in OFTEN else 1 for draw in DRAWS]
    found = []
    for draw in world.random.choices(DRAWS, weights, k=REQUESTS):
        request = draw(world)
        exchange = Exchange.of(request, reference, ours)
        if exchange.unexplained:
            found.append(str(exchange))
        _forget(world, exchange, reference, ours)
        if len(found) == MOST_SHOWN:
            break
    assert not found, "\n\n".join(found)


def _forget(world: World, exchange: Exchange, reference: Service, ours: Service) -> None:
    """Leave nothing behind that only one of the services knows, or under one name only."""
    request = exchange.request
    if request.path == "/resource_providers" and request.method == "POST" and not is_given_uuid(request):
        for service, answer in ((reference, exchange.reference), (ours, exchange.ours)):
            if "location" in answer.headers:
                service.answer(ask("DELETE", answer.headers["location"]))
    if request.method in ("PUT", "POST") and request.path.startswith(("/allocations", "/reshaper")):
        world.retire(request)
