"""Error responses: status, format and envelope (`docs/spec/http.md 6`)."""

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, request
from markupsafe import escape
from werkzeug.exceptions import HTTPException, InternalServerError, MethodNotAllowed

from placement_svc.domain import errors
from placement_svc.domain.wording import shorten
from placement_svc.http import microversion
from placement_svc.http.accept import HTML, JSON, PLAIN, error_format
from placement_svc.http.json import dumps
from placement_svc.http.log_text import for_log

log = logging.getLogger(__name__)

STATUS = {
    errors.Invalid: 400,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Unavailable: 503,
}
"""The status of each kind of error; a subclass has the status of its nearest base class listed here."""

CLIENT_CLOSED_REQUEST = "499 Client Closed Request"
"""The status of a request whose client disconnected; HTTP defines none, nginx logs the same number."""

EXPLANATIONS = {
    400: (
        "The server could not comply with the request since it is either malformed or otherwise incorrect."
    ),
    401: "The request needs a token: send one as X-Auth-Token.",
    403: "Access was denied to this resource.",
    404: "The resource could not be found.",
    405: "The method {method} is not allowed for this resource.",
    406: "The resource could not be generated that was acceptable to your browser (content of type {type}. ",
    409: "There was a conflict when trying to complete your request.",
    413: "The request body is too large.",
    415: "The request media type {type} is not supported by this server. ",
    421: "The request is for a host that is not allowed.",
    500: "The server has either erred or is incapable of performing the requested operation.",
    503: "The service cannot answer at the moment.",
}
"""The first sentence of `detail` for each status; clients match those of 400 to 409, 415 and 500.

`{method}` is the method of the request. `{type}` is its `Accept` header in a 406 and its `Content-Type` in a
415.
"""

MAX_TYPE = 200
"""The most characters of a media type that the first sentence quotes."""

RETRY_AFTER = "1"
"""Seconds after which a client should retry after a 503."""


MAX_ERROR_SIZE = 4000
"""The most bytes in the body of an error response, besides long extra keys. A longer reason is cut."""

MAX_METHOD_LENGTH = 100


def _one_line(text: str) -> str:
    """Return `text` as one line without markup: clients show the last line of the detail as the reason."""
    return re.sub(r"<[^<>]*>", "", text.replace("\n", " "))


def _explanation(status: int) -> str:
    template = EXPLANATIONS.get(status, HTTPStatus(status).description)
    return template.format(
        method=shorten(request.environ["REQUEST_METHOD"], MAX_METHOD_LENGTH),
        type=_media_type(status)[:MAX_TYPE],
    )


def _media_type(status: int) -> str:
    """Return the media type to which the first sentence of an error refers."""
    if status == 406:
        accept = request.headers.get("Accept", "")
        return JSON if accept in ("", "*/*") else accept
    return str(request.headers.get("Content-Type"))


def _error_response(status: int, text: str, code: str, extra: Mapping[str, Any] | None = None) -> Response:
    media_type = error_format(request.headers.get("Accept"))
    explanation, reason = _explanation(status), _one_line(text)
    length = len(reason)
    extra_size = len(dumps(extra or {}))
    max_size = MAX_ERROR_SIZE + (extra_size if extra_size > MAX_ERROR_SIZE // 2 else 0)
    while True:
        detail = f"{explanation}\n\n {shorten(reason, length)}  "
        body = _body(status, media_type, detail=detail, code=code, extra=extra or {})
        if len(body) <= max_size or not length:
            break
        # A character takes one to six bytes, so the length that fits is found by trying.
        length = max(0, length * MAX_ERROR_SIZE // len(body) - len("… and 16,000,000 more characters"))
    content_type = media_type if media_type == JSON else f"{media_type}; charset=UTF-8"
    return Response(body, status=status, content_type=content_type)


def _body(status: int, media_type: str, *, detail: str, code: str, extra: Mapping[str, Any]) -> bytes:
    title = HTTPStatus(status).phrase
    if media_type == HTML:
        heading = f"{status} {title}"
        page = (
            f"<html>\n <head>\n  <title>{heading}</title>\n </head>\n"
            f" <body>\n  <h1>{heading}</h1>\n  {escape(detail)}\n </body>\n</html>\n"
        )
        return page.encode()
    if media_type == PLAIN:
        return f"{status} {title}\n\n{detail}\n".encode()
    if status == 401:
        # An unauthenticated caller learns nothing about the service, not even its error format.
        return dumps({"message": detail.strip(), "code": f"{status} {title}", "title": title})
    error: dict[str, Any] = {"status": status, "title": title, "detail": detail}
    version = microversion.current()
    if version is not None and version >= (1, 23):
        error["code"] = code
    error["request_id"] = g.request_id
    return dumps({"errors": [{**error, **extra}]})


def status_of(error: errors.PlacementError) -> int:
    """Return the status of the response to a request that failed with `error`."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def keep_error(error: errors.PlacementError) -> None:
    """Keep the error of the current request for the log and the metrics, without its traceback and causes.

    The frames of a traceback refer to the request body, and to the response. The function that logs the
    response refers to the error, so this cycle would keep the body until the garbage collector runs.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    g.error = error


def _placement_error(error: errors.PlacementError) -> Response:
    keep_error(error)
    status = status_of(error)
    response = _error_response(status, str(error), error.code, error.extra)
    if status == 503:
        response.headers["Retry-After"] = RETRY_AFTER
    return response


def _client_disconnected(error: errors.ClientDisconnected) -> Response:
    """Return an empty response, which nobody receives; its status is what the log and the metrics show."""
    keep_error(error)
    return Response(status=CLIENT_CLOSED_REQUEST)


def _http_error(error: HTTPException) -> Response:
    assert error.code is not None
    text = "" if error.description == type(error).description else error.description or ""
    response = _error_response(error.code, text, errors.PlacementError.code, getattr(error, "range", None))
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(error.valid_methods)
    if request.method == "HEAD":
        response.set_data(b"")
        response.content_type = f"{HTML}; charset=UTF-8"
    if hasattr(error, "challenge"):
        response.headers["WWW-Authenticate"] = error.challenge
    return response


def _unexpected(error: Exception) -> Response:
    log.error("%s %s failed", request.method, for_log(request.path), exc_info=error)
    g.pop("microversion", None)
    return _error_response(500, "", errors.PlacementError.code)


def install(app: Flask) -> None:
    """Register the handlers that turn every error of `app` into a response in the API's format."""
    app.register_error_handler(errors.PlacementError, _placement_error)
    app.register_error_handler(errors.ClientDisconnected, _client_disconnected)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(InternalServerError, _unexpected)
    app.register_error_handler(Exception, _unexpected)
