"""Errors of gunicorn's parser, which quote what the client sent."""

from gunicorn.http.errors import (
    InvalidHeader,
    InvalidResponseHeader,
    InvalidResponseHeaderName,
    ParseException,
)

NAMED_HEADERS = {"CONTENT-LENGTH", "CONTENT-TYPE", "HOST", "TRANSFER-ENCODING"}
"""Headers whose errors name them; another name can be any text, such as a token."""


def without_contents(exc: Exception) -> Exception:
    """Remove the bytes of the client that a parse error of gunicorn quotes in its message."""
    # A response header comes from the application, and the error contains only its name.
    is_response = isinstance(exc, InvalidResponseHeader | InvalidResponseHeaderName)
    if isinstance(exc, InvalidHeader) and exc.hdr in NAMED_HEADERS:
        exc.hdr = exc.hdr.title()
    elif isinstance(exc, ParseException) and not is_response:
        exc.args = ()
        for name, value in vars(exc).items():
            if isinstance(value, str | bytes | bytearray | tuple):
                setattr(exc, name, "(not shown)")
    return exc
