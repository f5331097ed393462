"""A name for every request, in its answer and in the log (`docs/spec/http.md 8`)."""

import logging
import re
from uuid import uuid4

from flask import Response, g, has_request_context, request

HEADER = "X-Openstack-Request-Id"
_GLOBAL = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def start() -> None:
    """Give the present request its own id, and note the caller's if it sent a proper one."""
    g.request_id = f"req-{uuid4()}"
    sent = request.headers.get(HEADER, "")
    g.global_request_id = sent if _GLOBAL.fullmatch(sent) else None


def stamp(response: Response) -> Response:
    """Put the request's id on its answer."""
    response.headers[HEADER.lower()] = g.request_id
    return response


class RequestIdFilter(logging.Filter):
    """Adds `request_id` and `global_request_id` to what is logged in the course of a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Fill in the ids, if there are any."""
        if has_request_context() and "request_id" in g:
            record.request_id = g.request_id
            record.global_request_id = g.global_request_id
        return True
