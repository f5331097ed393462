"""Cross-origin resource sharing, CORS (`docs/spec/http.md 10`)."""

from collections.abc import Collection
from dataclasses import dataclass

from flask import Request, Response

from placement_svc.domain.version_header import VERSION_HEADER

METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH")
HEADERS = (
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Identity-Status",
    "X-Roles",
    "X-Service-Catalog",
    "X-User-Id",
    "X-Tenant-Id",
    VERSION_HEADER,
)
"""Request headers that are allowed by default."""

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
"""Request headers that are always allowed."""

EXPOSED_HEADERS = (
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Subject-Token",
    "X-Service-Token",
    VERSION_HEADER,
)
"""Response headers that the script of a page may read."""

MAX_AGE = 3600
"""Seconds for which a browser may cache the response to a preflight request."""


@dataclass(frozen=True)
class Cors:
    """The allowed origins (``*`` allows all) and the request headers that their pages may send."""

    origins: Collection[str]
    headers: Collection[str] = HEADERS

    def preflight(self, request: Request) -> Response:
        """Return the response to OPTIONS: always 200 and empty.

        It has the CORS headers only if the origin, the method and all headers are allowed.
        """
        response = Response(status=200)
        requested_headers = request.headers.get("Access-Control-Request-Headers", "")
        method = request.headers.get("Access-Control-Request-Method")
        origin = self._allowed_origin(request)
        if origin is None or method not in METHODS or not self._allows_headers(requested_headers):
            return response
        response.headers["Access-Control-Max-Age"] = str(MAX_AGE)
        response.headers["Access-Control-Allow-Methods"] = method
        if requested_headers:
            response.headers["Access-Control-Allow-Headers"] = requested_headers
        return _allow_origin(response, origin)

    def add_headers(self, request: Request, response: Response) -> Response:
        """Allow a page of an allowed origin to read `response`, errors included."""
        origin = self._allowed_origin(request)
        if origin is None:
            return response
        response.headers["Access-Control-Expose-Headers"] = ",".join(EXPOSED_HEADERS)
        return _allow_origin(response, origin)

    def _allowed_origin(self, request: Request) -> str | None:
        origin = request.headers.get("Origin")
        if not origin or origin in self.origins:
            return origin or None
        return "*" if "*" in self.origins else None

    def _allows_headers(self, requested: str) -> bool:
        allowed = {header.lower() for header in (*self.headers, *SIMPLE_HEADERS)}
        return all(header.strip().lower() in allowed for header in requested.split(",") if header.strip())


def _allow_origin(response: Response, origin: str) -> Response:
    vary = response.headers.get("Vary")
    response.headers["Vary"] = f"{vary},Origin" if vary else "Origin"
    response.headers["Access-Control-Allow-Origin"] = origin
    response.headers["Access-Control-Allow-Credentials"] = "true"
    return response
