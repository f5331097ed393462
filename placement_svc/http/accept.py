"""Media types that the `Accept` header of a request allows (`docs/spec/http.md 5 and 6`)."""

import re
from functools import lru_cache

from werkzeug.datastructures import MIMEAccept

HEADER_CACHE_SIZE = 64
"""How many `Accept` headers are cached: a client sends the same one with each request."""

JSON = "application/json"
HTML = "text/html"
PLAIN = "text/plain"

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rf'(?:{_TOKEN}|"(?:[^"\\]|\\.)*")'
_PARAMETERS = rf"(?:[ \t]*;[ \t]*(?!q=){_TOKEN}={_VALUE})*"
_WEIGHT = r"[ \t]*;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)"
_EXTENSIONS = rf"(?:[ \t]*;[ \t]*{_TOKEN}(?:={_VALUE})?)*"
# A token may be `*`. Alternatives that both match `*/*` would make a malformed header take exponential time.
_RANGE = rf"({_TOKEN}/{_TOKEN}{_PARAMETERS})(?:{_WEIGHT}{_EXTENSIONS})?"
_RANGES = re.compile(_RANGE, re.IGNORECASE)
_WELL_FORMED = re.compile(rf"(?:,|{_RANGE})(?:[ \t]*,(?:[ \t]*{_RANGE})?)*", re.IGNORECASE)


def _parse(header: str) -> MIMEAccept | None:
    """Return an `Accept` header parsed, None if it is malformed (RFC 7231, section 5.3.2)."""
    if not _WELL_FORMED.fullmatch(header.strip()):
        return None
    weights: dict[str, float] = {}
    for match in _RANGES.finditer(header):
        # The first of equal ranges counts, as in OpenStack Placement.
        weights.setdefault(_normalize(match[1]), float(match[2] or 1))
    return MIMEAccept(list(weights.items()))


def _normalize(media_range: str) -> str:
    """Return a range in lower case; a wildcard without parameters, as it would be more specific with them."""
    kind = media_range.partition(";")[0].rstrip()
    return (kind if kind.endswith("/*") else media_range).lower()


def _allows_anything(header: str) -> bool:
    """Return whether `header` leaves the media type to the service, which then responds with JSON."""
    return header.strip() in ("", "*/*")


@lru_cache(HEADER_CACHE_SIZE)
def accepts_json(header: str | None) -> bool:
    """Return whether an `Accept` header allows JSON; a malformed header does."""
    if header is None or _allows_anything(header):
        return True
    accept = _parse(header)
    return accept is None or accept.quality(JSON) > 0


def prefers_html(header: str | None) -> bool:
    """Return whether an `Accept` header names HTML and ranks it before JSON, as that of a browser does."""
    accept = _parse(header or "") or MIMEAccept()
    names_html = any(name.partition(";")[0].rstrip().lower() == HTML for name in accept.values())
    return names_html and accept.quality(HTML) > accept.quality(JSON)


def error_format(header: str | None) -> str:
    """Return the media type of an error response to a request with this `Accept` header."""
    if header is None or _allows_anything(header):
        return JSON
    accept = _parse(header)
    if accept is None:
        return HTML
    html, json = accept.quality(HTML), accept.quality(JSON)
    if not html and not json:
        return PLAIN
    return JSON if json > html else HTML
