"""Where this service is for its callers when a proxy stands in front of it (`docs/spec/http.md 11`)."""

import re
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.http import parse_list_header

VALID = {
    "proto": re.compile(r"https?", re.IGNORECASE),
    "host": re.compile(r"([\w.~-]+|\[[0-9a-f:.]+\])(:\d{1,5})?", re.IGNORECASE | re.ASCII),
    "prefix": re.compile(r"(/[\w~-][\w.~-]*)+/?", re.ASCII),
}
"""What each thing that a proxy tells looks like; what looks otherwise is not heard."""

_PAIR = re.compile(r"""(?:^|;)\s*([^\s;=]+)=("[^"]*"|[^;"]*)(?=;|$)""")
"""A pair of the `Forwarded` header; of its values some need quotes, which not every proxy writes."""


def _last(header: str) -> str:
    """Return what the nearest proxy wrote: the others may be the client's own words."""
    return ["", *parse_list_header(header)][-1]


def _told(environ: WSGIEnvironment) -> dict[str, str]:
    """Return what a proxy tells: the scheme and the host that the caller used, and the path before ours.

    The `Forwarded` header (RFC 7239) is heard before those that it came to replace.
    """
    told = {name: _last(environ.get(f"HTTP_X_FORWARDED_{name.upper()}", "")) for name in VALID}
    for name, value in _PAIR.findall(_last(environ.get("HTTP_FORWARDED", ""))):
        if name.lower() in ("proto", "host"):
            told[name.lower()] = value.strip().strip('"')
    return {name: value for name, value in told.items() if VALID[name].fullmatch(value)}


class BehindProxy:
    """A WSGI application that takes itself to be where the proxy in front of it says."""

    def __init__(self, application: WSGIApplication) -> None:
        self.application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer as `application` does, in an environment that the proxy's headers have changed."""
        told = _told(environ)
        moved = {
            "wsgi.url_scheme": told.get("proto", str(environ["wsgi.url_scheme"])).lower(),
            "SCRIPT_NAME": told.get("prefix", "").rstrip("/") + environ.get("SCRIPT_NAME", ""),
        }
        if "host" in told:
            moved["HTTP_HOST"] = told["host"]
        return self.application(environ | moved, start_response)
