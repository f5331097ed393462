"""Reduce an expensive request to the parts that make it expensive."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.cost.requests import Request


def minimized(request: Request, is_expensive: Callable[[Request], bool], attempts: int) -> Request:
    """Return a smaller request that `is_expensive` accepts, after at most so many calls of it."""
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(request):
            if attempts == 0:
                return request
            attempts -= 1
            if is_expensive(smaller):
                request, progress = smaller, True
                break
    return request


def _smaller(request: Request) -> Iterator[Request]:
    """Yield requests without some of the pairs, list items, or members of the body; small ones first."""
    for pairs in _parts(list(request.pairs)):
        yield replace(request, pairs=tuple(pairs))
    if request.text:
        yield replace(request, text=request.text[: len(request.text) // 2])
    for body in _smaller_values(request.body):
        yield replace(request, body=body)
    for number, (key, value) in enumerate(request.pairs):
        items = value.split(",")
        if len(items) > 4:
            shorter = (key, ",".join(items[: len(items) // 2]))
            yield replace(request, pairs=(*request.pairs[:number], shorter, *request.pairs[number + 1 :]))


def _parts(members: list[Any]) -> Iterator[list[Any]]:
    """Yield lists without a half, a quarter and so on of the members, down to single ones."""
    size = len(members) // 2
    while size:
        for start in range(0, len(members), size):
            yield members[:start] + members[start + size :]
        size //= 2


def _smaller_values(value: Any) -> Iterator[Any]:
    if isinstance(value, list) and len(value) > 1:
        yield value[: len(value) // 2]
        yield value[len(value) // 2 :]
    if isinstance(value, dict):
        members = list(value.items())
        if len(members) > 1:
            yield dict(members[: len(members) // 2])
            yield dict(members[len(members) // 2 :])
        for key, member in members[:5]:
            for smaller in _smaller_values(member):
                yield {**value, key: smaller}
