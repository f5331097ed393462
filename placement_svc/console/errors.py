"""Error pages of the console."""

import logging
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, render_template, request
from werkzeug.exceptions import HTTPException, InternalServerError, MethodNotAllowed

from placement_svc.console.login import is_unauthorized
from placement_svc.domain.errors import ClientDisconnected, PlacementError
from placement_svc.domain.wording import short_reason
from placement_svc.http.errors import CLIENT_CLOSED_REQUEST, RETRY_AFTER, keep_error, status_of
from placement_svc.http.log_text import for_log

log = logging.getLogger(__name__)


def _page(status: int, reason: str) -> tuple[str, int]:
    page = render_template(
        "error.html",
        status=status,
        phrase=HTTPStatus(status).phrase,
        reason=short_reason(reason),
        request_id=g.get("request_id", ""),
    )
    return page, status


def _placement_error(error: PlacementError) -> Any:
    keep_error(error)
    page, status = _page(status_of(error), str(error))
    headers = {"Retry-After": RETRY_AFTER} if status == 503 else {}
    return page, status, headers


def _client_disconnected(error: ClientDisconnected) -> Response:
    keep_error(error)
    return Response(status=CLIENT_CLOSED_REQUEST)


def _http_error(error: HTTPException) -> Any:
    if is_unauthorized(error):
        return _page(401, "This page needs a valid token.")
    if error.code is None or error.code < 400:
        return error
    page, status = _page(error.code, error.description or "")
    methods = error.valid_methods if isinstance(error, MethodNotAllowed) else None
    return page, status, {"Allow": ", ".join(sorted(methods))} if methods else {}


def _unexpected(error: Exception) -> Any:
    log.error("%s %s failed", request.method, for_log(request.path), exc_info=error)
    return _page(500, "The service failed to build this page. Its log has the details.")


def install(app: Flask) -> None:
    """Register the handlers that turn every error of `app` into a page."""
    app.register_error_handler(PlacementError, _placement_error)
    app.register_error_handler(ClientDisconnected, _client_disconnected)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(InternalServerError, _unexpected)
    app.register_error_handler(Exception, _unexpected)
