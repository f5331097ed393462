"""`Last-Modified` and `Cache-Control`, since microversion 1.15 (`docs/spec/http.md 9`)."""

from collections.abc import Iterable
from datetime import UTC, datetime

from flask import Response

from placement_svc.http.microversion import since


def now() -> datetime:
    """Return the current time, which is the modification time of a resource without one of its own."""
    return datetime.now(UTC)


def newest(times: Iterable[datetime]) -> datetime:
    """Return the newest of `times`, or the current time if there are none."""
    return max(times, default=None) or now()


def set_cache_headers(response: Response, modified: datetime | None) -> Response:
    """Set `Cache-Control` and `Last-Modified` since 1.15, and return `response`.

    `modified` is the value of `Last-Modified`; None omits that header.
    """
    if since("1.15"):
        response.headers["Cache-Control"] = "no-cache"
        if modified is not None:
            response.last_modified = modified
    return response
