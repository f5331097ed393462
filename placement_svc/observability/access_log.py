"""What is known of each request when it has been answered: a line in the log, and the metrics."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from flask import Flask, Response, g, request

from placement_svc.domain.errors import PlacementError
from placement_svc.http import microversion
from placement_svc.observability import request_stats
from placement_svc.observability.request_stats import RequestStats

log = logging.getLogger(__name__)

UNKNOWN = "unknown"
"""The route of paths and methods that are none of the API's."""


@dataclass(frozen=True)
class Answered:
    """A request that has been answered.

    `route` is the rule that its path follows, `seconds` counts until the last byte of the answer, and
    `error` is what the answer tells, if it is one of the API's errors. `body_bytes` is None for a body
    that came in chunks.
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
    error: PlacementError | None
    seconds: float
    stats: RequestStats


def install(app: Flask, slow: float, report: Callable[[Answered], None] | None) -> None:
    """Let `app` log each request that it has answered, and `report` it.

    One that took more than `slow` seconds is logged with its parameters.
    """

    @app.before_request
    def start() -> None:
        g.stats = request_stats.start()
        g.started = perf_counter()

    @app.after_request
    def end(response: Response) -> Response:
        answered = _answered(response)

        @response.call_on_close
        def sent() -> None:
            done = answered(perf_counter())
            _log(done, slow)
            if report is not None:
                report(done)

        return response


def _answered(response: Response) -> Callable[[float], Answered]:
    """Return a function of the moment of the last byte: by then the request's context is gone."""
    version = microversion.current()
    started: float = g.started
    facts = {
        "method": request.environ["REQUEST_METHOD"],
        "path": request.path,
        "query": request.query_string.decode(errors="backslashreplace"),
        "body_bytes": request.content_length,
        "route": request.url_rule.rule if request.url_rule else UNKNOWN,
        "endpoint": request.endpoint,
        "status": response.status_code,
        "microversion": str(version) if version else None,
        "request_id": g.request_id,
        "global_request_id": g.global_request_id,
        "error": g.get("error"),
        "stats": g.stats,
    }
    return lambda now: Answered(seconds=now - started, **facts)


def log_fields(answered: Answered, slow: float) -> dict[str, Any]:
    """Return what the log tells of a request, its parameters only if it took more than `slow` seconds."""
    fields = {
        "method": answered.method,
        "path": answered.path,
        "status": answered.status,
        "duration": round(answered.seconds, 6),
        "statements": answered.stats.statements,
        "statement_duration": round(answered.stats.statement_seconds, 6),
        "route": answered.route,
        "microversion": answered.microversion,
        "request_id": answered.request_id,
        "global_request_id": answered.global_request_id,
    }
    if answered.seconds > slow:
        fields |= {"query": answered.query, "body_bytes": answered.body_bytes}
    return fields


def _log(answered: Answered, slow: float) -> None:
    fields = log_fields(answered, slow)
    if answered.seconds > slow:
        log.warning("slow request", extra=fields)
    else:
        log.info("request", extra=fields)
