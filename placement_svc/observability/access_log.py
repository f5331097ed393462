"""The access log: one log record for each completed request, which metrics and reports get, too."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any
from wsgiref.types import WSGIEnvironment

from flask import Flask, Request, Response, g, request

from placement_svc.domain.errors import PlacementError
from placement_svc.domain.execution import request_stats
from placement_svc.domain.execution.request_stats import RequestStats
from placement_svc.domain.limits import MAX_ID_LENGTH
from placement_svc.http import microversion, request_id
from placement_svc.http.auth import Caller
from placement_svc.http.json import StreamedResponse
from placement_svc.http.log_text import for_log

log = logging.getLogger(__name__)

UNKNOWN_ROUTE = "unknown"
"""The route of a path or a method that the API does not have."""


@dataclass(frozen=True)
class CompletedRequest:
    """A request whose response has been sent.

    `route` is the URL rule that matches the path. `seconds` is the time from the start of the request to the
    last byte of the response, 0 until then. `error` is the API error in the response, if any. `body_bytes` is
    None for a chunked body. `user_id` and `project_id` are those of an authenticated caller. `client` is the
    address of the other end of the connection, None for a Unix socket. `aborted` tells whether the body ended
    early.
    """

    method: str
    path: str
    query: str
    body_bytes: int | None
    route: str
    endpoint: str | None
    status: int
    microversion: str | None
    request_id: str
    global_request_id: str | None
    user_id: str | None
    project_id: str | None
    client: str | None
    error: PlacementError | None
    stats: RequestStats
    seconds: float = 0.0
    aborted: bool = False

    @property
    def is_empty_search(self) -> bool:
        """Whether the request was a search for allocation candidates that found none."""
        return self.stats.candidates == 0 and self.status == 200 and not self.aborted


Report = Callable[[CompletedRequest], None]
"""A function that gets each completed request."""


def install(
    app: Flask, slow_seconds: float, reports: Sequence[Report]
) -> Callable[[WSGIEnvironment, Response, float], None]:
    """Make `app` log each completed request and pass it to each function of `reports`.

    A request that took more than `slow_seconds` is logged as a warning, with its parameters.

    Return a function that does the same for a request that a WSGI middleware serves. It takes the
    environment, the response before it is sent, and the time of `perf_counter` at which the request started.
    """

    def end_with(response: Response, started: float, received: CompletedRequest) -> None:
        @response.call_on_close
        def sent() -> None:
            is_aborted = isinstance(response, StreamedResponse) and response.aborted
            completed = replace(received, seconds=perf_counter() - started, aborted=is_aborted)
            _log(completed, slow_seconds)
            for report in reports:
                report(completed)

    @app.before_request
    def start() -> None:
        g.stats = request_stats.start()
        g.started = perf_counter()

    @app.after_request
    def end(response: Response) -> Response:
        end_with(response, g.started, _completed(response))
        return response

    def record(environ: WSGIEnvironment, response: Response, started: float) -> None:
        own_id = request_id.generate()
        response.headers[request_id.HEADER.lower()] = own_id
        # Otherwise Werkzeug closes only the file of a response, and not the response itself.
        response.direct_passthrough = False
        end_with(response, started, _completed_outside(environ, response, own_id))

    return record


def _completed(response: Response) -> CompletedRequest:
    """Return the current request; its context ends before the last byte is sent."""
    version = microversion.current()
    caller: Caller | None = g.get("caller")
    return CompletedRequest(
        method=request.environ["REQUEST_METHOD"],
        path=request.path,
        query=request.query_string.decode(errors="backslashreplace"),
        body_bytes=request.content_length,
        route=request.url_rule.rule if request.url_rule else UNKNOWN_ROUTE,
        endpoint=request.endpoint,
        status=response.status_code,
        microversion=str(version) if version else None,
        request_id=g.request_id,
        global_request_id=g.global_request_id,
        user_id=_logged_id(caller, caller.user_id if caller else None),
        project_id=_logged_id(caller, caller.project_id if caller else None),
        client=request.remote_addr or None,
        error=g.get("error"),
        stats=g.stats,
    )


def _logged_id(caller: Caller | None, id_: str | None) -> str | None:
    """Return the id of a caller's user or project as the log shows it; None if it does not show it.

    For an unverified caller (`noauth`), the log shows only `admin`: any other text can be the token of
    another service, sent here by mistake.
    """
    if caller is None or id_ is None or not (caller.is_verified or id_ == "admin"):
        return None
    return id_[:MAX_ID_LENGTH]


def _completed_outside(environ: WSGIEnvironment, response: Response, own_id: str) -> CompletedRequest:
    """Return a request with the id `own_id` that does not reach Flask; its path must be a fixed one."""
    received = Request(environ)
    return CompletedRequest(
        method=environ["REQUEST_METHOD"],
        path=received.path,
        query=received.query_string.decode(errors="backslashreplace"),
        body_bytes=received.content_length,
        route=received.path,
        endpoint=None,
        status=response.status_code,
        microversion=None,
        request_id=own_id,
        global_request_id=request_id.global_id(received.headers.get(request_id.HEADER, "")),
        user_id=None,
        project_id=None,
        client=received.remote_addr or None,
        error=None,
        stats=RequestStats(),
    )


def log_fields(completed: CompletedRequest, slow_seconds: float) -> dict[str, Any]:
    """Return the fields of a request's log record, with its parameters if it took over `slow_seconds`.

    A long path or query is cut.
    """
    fields = {
        "method": completed.method,
        "path": for_log(completed.path),
        "status": completed.status,
        "duration": round(completed.seconds, 6),
        "statements": completed.stats.statements,
        "statement_duration": round(completed.stats.statement_seconds, 6),
        "route": completed.route,
        "microversion": completed.microversion,
        "request_id": completed.request_id,
        "global_request_id": completed.global_request_id,
        "user_id": completed.user_id,
        "project_id": completed.project_id,
        "client": completed.client,
    }
    if completed.aborted:
        fields["aborted"] = True
    if completed.seconds > slow_seconds:
        fields |= {"query": for_log(completed.query), "body_bytes": completed.body_bytes}
    return fields


def _log(completed: CompletedRequest, slow_seconds: float) -> None:
    fields = log_fields(completed, slow_seconds)
    if completed.seconds > slow_seconds:
        log.warning("slow request", extra=fields)
    else:
        log.info("request", extra=fields)
