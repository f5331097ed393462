"""What a request is willing to read (`docs/spec/http.md 5 and 6`)."""

import re

from werkzeug.datastructures import MIMEAccept

JSON = "application/json"
HTML = "text/html"
PLAIN = "text/plain"

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rf'(?:{_TOKEN}|"[^"]*")'
_PARAMETERS = rf"(?:[ \t]*;[ \t]*(?!q=){_TOKEN}={_VALUE})*"
_WEIGHT = r"[ \t]*;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)"
_EXTENSIONS = rf"(?:[ \t]*;[ \t]*{_TOKEN}(?:={_VALUE})?)*"
_RANGE = rf"((?:\*/\*|{_TOKEN}/{_TOKEN}|{_TOKEN}/\*){_PARAMETERS})(?:{_WEIGHT}{_EXTENSIONS})?"
_RANGES = re.compile(_RANGE, re.IGNORECASE)
_WELL_FORMED = re.compile(rf"(?:,|{_RANGE})(?:[ \t]*,(?:[ \t]*{_RANGE})?)*", re.IGNORECASE)


def _parse(header: str) -> MIMEAccept | None:
    """Return what an Accept `header` says, None if it is no such header (RFC 7231, 5.3.2)."""
    if not _WELL_FORMED.fullmatch(header.strip()):
        return None
    return MIMEAccept([(found[1], float(found[2] or 1)) for found in _RANGES.finditer(header)])


def _is_open(header: str | None) -> bool:
    """Tell whether `header` leaves the choice to us, so that JSON is the answer."""
    return header is None or header.strip() in ("", "*/*")


def accepts_json(header: str | None) -> bool:
    """Tell whether an Accept `header` admits JSON; one that is no Accept header at all does."""
    if header is None or _is_open(header):
        return True
    accept = _parse(header)
    return accept is None or accept.quality(JSON) > 0


def error_format(header: str | None) -> str:
    """Return the media type in which an error is told to somebody who sent this Accept `header`."""
    if header is None or _is_open(header):
        return JSON
    accept = _parse(header)
    if accept is None:
        return HTML
    html, json = accept.quality(HTML), accept.quality(JSON)
    if not html and not json:
        return PLAIN
    return JSON if json > html else HTML
