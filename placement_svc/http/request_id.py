"""Request ids, in responses and in the log (`docs/spec/http.md 8`)."""

import logging
import re
from uuid import uuid4

from flask import Response, g, has_request_context, request

HEADER = "X-Openstack-Request-Id"
_GLOBAL = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def generate() -> str:
    """Return a new request id."""
    return f"req-{uuid4()}"


def global_id(sent: str) -> str | None:
    """Return the id that a caller sent, None if it is not valid."""
    return sent if _GLOBAL.fullmatch(sent) else None


def assign() -> None:
    """Set `g.request_id` to a new id, and `g.global_request_id` to the id that the caller sent, if valid."""
    g.request_id = generate()
    g.global_request_id = global_id(request.headers.get(HEADER, ""))


def set_header(response: Response) -> Response:
    """Set the header with the id of the current request, and return `response`."""
    response.headers[HEADER.lower()] = g.request_id
    return response


class RequestIdFilter(logging.Filter):
    """Add `request_id` and `global_request_id` to the log records of a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Set the ids if there is a current request."""
        if has_request_context() and "request_id" in g:
            record.request_id = g.request_id
            record.global_request_id = g.global_request_id
        return True
