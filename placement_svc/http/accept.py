"""What a request is willing to read (`spec/http.md 5 and 6`)."""

import re

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

JSON = "application/json"
HTML = "text/html"
PLAIN = "text/plain"

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rf'(?:{_TOKEN}|"[^"]*")'
_RANGE = rf"(?:\*/\*|{_TOKEN}/{_TOKEN}|{_TOKEN}/\*)(?:[ \t]*;[ \t]*{_TOKEN}(?:={_VALUE})?)*"
_WELL_FORMED = re.compile(rf"[ \t,]*(?:{_RANGE}[ \t]*(?:,[ \t,]*|$))*")


def _is_open(header: str | None) -> bool:
    """Tell whether `header` leaves the choice to us, so that JSON is the answer."""
    return header is None or header.strip() in ("", "*/*")


def accepts_json(header: str | None) -> bool:
    """Tell whether an Accept `header` admits JSON; one that is no Accept header at all does."""
    if header is None or _is_open(header) or not _WELL_FORMED.fullmatch(header):
        return True
    return parse_accept_header(header, MIMEAccept).quality(JSON) > 0


def error_format(header: str | None) -> str:
    """Return the media type in which an error is told to somebody who sent this Accept `header`."""
    if header is None or _is_open(header):
        return JSON
    if not _WELL_FORMED.fullmatch(header):
        return HTML
    accept = parse_accept_header(header, MIMEAccept)
    html, json = accept.quality(HTML), accept.quality(JSON)
    if not html and not json:
        return PLAIN
    return JSON if json > html else HTML
