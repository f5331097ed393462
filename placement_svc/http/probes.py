"""Health probes and metrics; they need no token and have no microversion."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from flask import Response

from placement_svc.http.hosts import AllowedHosts, MisdirectedRequest

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ALIVE = "/healthz"
READY = "/readyz"
METRICS = "/metrics"
PATHS = (ALIVE, READY, METRICS)

STOPPING = "placement_svc.stopping"
"""True in the WSGI environment of a request to a server that is shutting down."""


class ProbesMiddleware:
    """A WSGI middleware that serves the probes and the metrics, and passes other requests on.

    `readiness` returns why the service cannot serve requests, None if it can, and lines with details.
    `metrics` returns the metrics response; with None, requests of that path are passed on, and the API
    responds with 404. The metrics describe the cloud, so with `metrics_hosts`, they are refused for other
    hosts.
    """

    def __init__(
        self,
        app: "WSGIApplication",
        readiness: Callable[[], tuple[str | None, Sequence[str]]],
        metrics: Callable[[], Response] | None,
        metrics_hosts: AllowedHosts | None,
    ) -> None:
        self.app = app
        self.readiness = readiness
        self.metrics = metrics
        self.metrics_hosts = metrics_hosts

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Serve a request, or pass it on."""
        path = environ["PATH_INFO"]
        if path not in PATHS or (path == METRICS and self.metrics is None):
            return self.app(environ, start_response)
        return self._respond(path, environ)(environ, start_response)

    def _respond(self, path: str, environ: "WSGIEnvironment") -> Response:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return Response(status=405, headers={"Allow": "GET, HEAD"})
        if path == METRICS and self.metrics is not None:
            return self._guarded_metrics(self.metrics, environ)
        if path == ALIVE:
            return _text(200, "alive")
        if environ.get(STOPPING):
            return _text(503, "The service is stopping.")
        reason, details = self.readiness()
        return _text(503 if reason else 200, reason or "ready", *details)

    def _guarded_metrics(self, metrics: Callable[[], Response], environ: "WSGIEnvironment") -> Response:
        try:
            if self.metrics_hosts is not None:
                self.metrics_hosts.check(environ)
        except MisdirectedRequest as error:
            return _text(error.code, str(error.description))
        return metrics()


def _text(status: int, *lines: str) -> Response:
    return Response(
        "".join(f"{line}\n" for line in lines), status=status, content_type="text/plain; charset=UTF-8"
    )
