"""`Last-Modified` and `Cache-Control`, since microversion 1.15 (`docs/spec/http.md 9`)."""

from collections.abc import Iterable
from datetime import UTC, datetime

from flask import Response

from placement_svc.http.microversion import since


def now() -> datetime:
    """Return the present moment, for what has no older time of its own."""
    return datetime.now(UTC)


def newest(times: Iterable[datetime]) -> datetime:
    """Return the newest of `times`; the present moment if there are none."""
    return max(times, default=None) or now()


def stamp(response: Response, modified: datetime | None) -> Response:
    """Mark `response` as last modified then; None leaves that header out."""
    if since("1.15"):
        response.cache_control.no_cache = True
        if modified is not None:
            response.last_modified = modified
    return response
