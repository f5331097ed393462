"""What is asked of the service itself, beside the API: it needs no token and has no microversion."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flask import Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ALIVE = "/healthz"
READY = "/readyz"
METRICS = "/metrics"
PATHS = (ALIVE, READY, METRICS)

STOPPING = "placement_svc.stopping"
"""True in the environ of a request whose server has been told to stop."""


class Probes:
    """A WSGI application that answers the probes, and leaves all else to another one.

    `problem` tells why requests cannot be served, None if they can. `metrics` answers with the
    metrics; None leaves that path to the API, which does not know it.
    """

    def __init__(
        self,
        app: "WSGIApplication",
        problem: Callable[[], str | None],
        metrics: Callable[[], Response] | None,
    ) -> None:
        self.app = app
        self.problem = problem
        self.metrics = metrics

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a request, or let the other application do so."""
        path = environ["PATH_INFO"]
        if path not in PATHS or (path == METRICS and self.metrics is None):
            return self.app(environ, start_response)
        return self._answer(path, environ)(environ, start_response)

    def _answer(self, path: str, environ: "WSGIEnvironment") -> Response:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return Response(status=405, headers={"Allow": "GET, HEAD"})
        if path == METRICS and self.metrics is not None:
            return self.metrics()
        if path == ALIVE:
            return _text(200, "alive")
        problem = "The service is stopping." if environ.get(STOPPING) else self.problem()
        return _text(503, problem) if problem else _text(200, "ready")


def _text(status: int, line: str) -> Response:
    return Response(f"{line}\n", status=status, content_type="text/plain; charset=UTF-8")
