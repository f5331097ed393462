"""The one place where an error becomes an answer: status, envelope and format (`docs/spec/http.md 6`)."""

import logging
import re
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, request
from markupsafe import escape
from werkzeug.exceptions import HTTPException, InternalServerError, MethodNotAllowed, Unauthorized

from placement_svc.domain import errors
from placement_svc.http import microversion
from placement_svc.http.accept import error_format
from placement_svc.http.json import dumps

log = logging.getLogger(__name__)

STATUS = {
    errors.Invalid: 400,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Unavailable: 503,
}

LEADS = {
    400: "The request cannot be understood, or it contradicts itself.",
    401: "The request needs a token: send one as X-Auth-Token.",
    403: "Access was denied to this resource.",
    404: "The resource could not be found.",
    405: "The method {method} is not allowed for this resource.",
    406: "The resource has no representation that the request accepts.",
    409: "The request conflicts with the present state of the resource.",
    413: "The request body is too large.",
    415: "The request body is of a type that this resource does not read.",
    500: "The server failed in a way it did not foresee; its log tells more under this request id.",
    503: "The service cannot answer for the moment.",
}
"""The sentence that opens the detail of every error of a status."""

RETRY_AFTER = "1"
"""Seconds after which it is worth asking again when the database failed."""


def _detail(status: int, text: str) -> str:
    lead = LEADS.get(status, HTTPStatus(status).description).format(method=request.environ["REQUEST_METHOD"])
    # Clients take the last line as the reason, and a reason is never markup.
    reason = re.sub(r"<[^<>]*>", "", " ".join(text.split("\n")))
    return f"{lead}\n\n {reason}  "


def _answer(status: int, text: str, code: str, extra: dict[str, str] | None = None) -> Response:
    title = HTTPStatus(status).phrase
    form = error_format(request.headers.get("Accept"))
    detail = _detail(status, text)
    body: str | bytes
    if form == "text/html":
        heading = f"{status} {title}"
        body = (
            f"<html>\n <head>\n  <title>{heading}</title>\n </head>\n"
            f" <body>\n  <h1>{heading}</h1>\n  {escape(detail)}\n </body>\n</html>\n"
        )
    elif form == "text/plain":
        body = f"{status} {title}\n\n{detail}\n"
    elif status == 401:
        # Before authentication the service says nothing of itself, its error format included.
        body = dumps({"message": detail.strip(), "code": f"{status} {title}", "title": title})
    else:
        error: dict[str, Any] = {"status": status, "title": title, "detail": detail}
        version = microversion.current()
        if version is not None and version >= (1, 23):
            error["code"] = code
        error["request_id"] = g.request_id
        body = dumps({"errors": [error | (extra or {})]})
    content_type = form if form == "application/json" else f"{form}; charset=UTF-8"
    return Response(body, status=status, content_type=content_type)


def _placement_error(error: errors.PlacementError) -> Response:
    g.error = error
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    answer = _answer(status, str(error), error.code)
    if status == 503:
        answer.headers["Retry-After"] = RETRY_AFTER
    return answer


def _http_error(error: HTTPException) -> Response:
    assert error.code is not None
    text = "" if error.description == type(error).description else error.description or ""
    answer = _answer(error.code, text, errors.PlacementError.code, getattr(error, "range", None))
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        answer.headers["Allow"] = ", ".join(error.valid_methods)
    if request.method == "HEAD":
        answer.set_data(b"")
        answer.content_type = "text/html; charset=UTF-8"
    if isinstance(error, Unauthorized):
        g.pop("microversion", None)
        if hasattr(error, "challenge"):
            answer.headers["WWW-Authenticate"] = error.challenge
    return answer


def _unexpected(error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    g.pop("microversion", None)
    return _answer(500, "", errors.PlacementError.code)


def install(app: Flask) -> None:
    """Let `app` answer every error in the API's format."""
    app.register_error_handler(errors.PlacementError, _placement_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(InternalServerError, _unexpected)
    app.register_error_handler(Exception, _unexpected)
