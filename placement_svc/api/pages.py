"""Responses that list one page, or all pages one after the other (`docs/spec/extensions.md 6.2`)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlencode

from flask import Response, request

from placement_svc.api import links
from placement_svc.domain.pages import Page, PageRequest
from placement_svc.http import caching
from placement_svc.http.json import dumps, respond
from placement_svc.schemas.pages import write_marker
from placement_svc.schemas.query import parse_pairs

T = TypeVar("T")

ELEMENTS_PER_READ = 1000
"""How many elements one transaction reads; the memory that a response needs depends on it."""

PIECE_SIZE = 64 * 1024
"""The least size of a piece of a response, in bytes."""


def respond_with_page(
    name: str,
    page: PageRequest,
    read: Callable[[PageRequest], Page[T]],
    to_json: Callable[[T], Any],
    *,
    elements_per_read: int = ELEMENTS_PER_READ,
) -> Response:
    """Return a response with the page as the member `name`, and with `links`.

    `read` reads a part of the page in a transaction of its own. It and `to_json` must not need the request:
    a long response is generated after the view has returned.
    """
    texts = _texts(page, read, to_json, elements_per_read=elements_per_read, next_link=link_to_next())
    pieces = join_pieces(f'{{"{name}":['.encode(), texts)
    return caching.set_cache_headers(respond(pieces), caching.now())


def link_to_next() -> Callable[[str], dict[str, str]]:
    """Return a function that returns the link to the page after a marker."""
    path = links.path(request.path.removeprefix("/"))
    pairs = [(key, value) for key, value in parse_pairs(request.query_string) if key != "marker"]
    return lambda marker: {"rel": "next", "href": f"{path}?{urlencode([*pairs, ('marker', marker)])}"}


def _texts(
    page: PageRequest,
    read: Callable[[PageRequest], Page[T]],
    to_json: Callable[[T], Any],
    *,
    elements_per_read: int,
    next_link: Callable[[str], dict[str, str]],
) -> Iterator[bytes]:
    """Yield the JSON of the elements with the commas between them, then the end of the response."""
    separator = b""
    remaining = page.limit
    after = page.after
    while True:
        count = elements_per_read if remaining is None else min(remaining, elements_per_read)
        found = read(replace(page, limit=count, after=after))
        for element in found.elements:
            yield separator + dumps(to_json(element))
            separator = b","
        after = found.last
        if remaining is not None:
            remaining -= count
        if not found.has_more or remaining == 0:
            break
    following = []
    if found.has_more and after is not None:
        following = [next_link(write_marker(after, page.sort))]
    yield b'],"links":' + dumps(following) + b"}"


def join_pieces(start: bytes, texts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the texts after `start`, joined to pieces of `PIECE_SIZE` or more."""
    piece = bytearray(start)
    for text in texts:
        piece += text
        if len(piece) >= PIECE_SIZE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)
