"""Draw a request of any kind."""

from collections.abc import Callable

from tests.cost import extensions, requests
from tests.cost.requests import Draw, Request

DRAWS: tuple[tuple[int, Callable[[Draw], Request]], ...] = (
    (60, requests.candidates),
    (12, requests.providers),
    (6, requests.reads),
    (6, requests.change_provider),
    (10, requests.claims),
    (6, requests.malformed),
    (20, extensions.placements),
    (6, extensions.placement_groups),
    (8, extensions.patches),
    (14, extensions.bulk_reads),
)
"""The kinds of requests, each with its share of all."""


def draw_request(draw: Draw) -> Request:
    """Draw a request of any kind."""
    weights, functions = zip(*DRAWS, strict=True)
    [function] = draw.random.choices(functions, weights)
    return function(draw)
