"""Answers that a browser may show to pages of other origins (`docs/spec/http.md 10`)."""

from collections.abc import Collection
from dataclasses import dataclass

from flask import Request, Response

METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH")
HEADERS = (
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Identity-Status",
    "X-Roles",
    "X-Service-Catalog",
    "X-User-Id",
    "X-Tenant-Id",
    "OpenStack-API-Version",
)
"""Headers that a page may send, unless the settings name others."""

SIMPLE_HEADERS = (
    "Accept",
    "Accept-Language",
    "Content-Type",
    "Cache-Control",
    "Content-Language",
    "Expires",
    "Last-Modified",
    "Pragma",
)
"""Headers that a page may send in any case."""

EXPOSED_HEADERS = (
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Subject-Token",
    "X-Service-Token",
    "OpenStack-API-Version",
)
MAX_AGE = 3600
"""Seconds that a browser may remember what it was allowed."""


@dataclass(frozen=True)
class Cors:
    """Which origins may read answers (``*``: all), and which headers their pages may send."""

    origins: Collection[str]
    headers: Collection[str] = HEADERS

    def preflight(self, request: Request) -> Response:
        """Return the answer to OPTIONS: always 200 and empty, with leave for what is allowed."""
        answer = Response(status=200)
        asked = request.headers.get("Access-Control-Request-Headers", "")
        method = request.headers.get("Access-Control-Request-Method")
        origin = self._allowed_origin(request)
        if origin is None or method not in METHODS or not self._may_send(asked):
            return answer
        answer.headers["Access-Control-Max-Age"] = str(MAX_AGE)
        answer.headers["Access-Control-Allow-Methods"] = method
        if asked:
            answer.headers["Access-Control-Allow-Headers"] = asked
        return _for_origin(answer, origin)

    def stamp(self, request: Request, answer: Response) -> Response:
        """Let a page of an allowed origin read `answer`, an error included."""
        origin = self._allowed_origin(request)
        if origin is None:
            return answer
        answer.headers["Access-Control-Expose-Headers"] = ",".join(EXPOSED_HEADERS)
        return _for_origin(answer, origin)

    def _allowed_origin(self, request: Request) -> str | None:
        origin = request.headers.get("Origin")
        if not origin or origin in self.origins:
            return origin or None
        return "*" if "*" in self.origins else None

    def _may_send(self, asked: str) -> bool:
        allowed = {header.lower() for header in (*self.headers, *SIMPLE_HEADERS)}
        return all(header.strip().lower() in allowed for header in asked.split(",") if header.strip())


def _for_origin(answer: Response, origin: str) -> Response:
    vary = answer.headers.get("Vary")
    answer.headers["Vary"] = f"{vary},Origin" if vary else "Origin"
    answer.headers["Access-Control-Allow-Origin"] = origin
    answer.headers["Access-Control-Allow-Credentials"] = "true"
    return answer
