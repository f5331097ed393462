"""The URL of this service behind a reverse proxy, from the proxy's headers (`docs/spec/http.md 11`)."""

import re
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.http import parse_list_header

PATTERNS = {
    "proto": re.compile(r"https?", re.IGNORECASE),
    "host": re.compile(r"([\w.~-]+|\[[0-9a-f:.]+\])(:\d{1,5})?", re.IGNORECASE | re.ASCII),
    "prefix": re.compile(r"(/[\w~-][\w.~-]*)+/?", re.ASCII),
}
"""The pattern of each value that a proxy sends; a value that does not match is ignored."""

RECEIVED_HOST = "placement_svc.received_host"
"""The `Host` header that the proxy sent, in the WSGI environment of a request with the host of its client."""

_PARAMETER = re.compile(r"""(?:^|;)\s*([^\s;=]+)=("[^"]*"|[^;"]*)(?=;|$)""")
"""A parameter of the `Forwarded` header; some values need quotes, which not every proxy writes."""


def _last(header: str) -> str:
    """Return the last item, which the nearest proxy wrote; a client may have sent the others."""
    return ["", *parse_list_header(header)][-1]


def _forwarded_values(environ: WSGIEnvironment) -> dict[str, str]:
    """Return the valid values that the proxy sent: scheme (`proto`), `host` and path `prefix`.

    The `Forwarded` header (RFC 7239) takes precedence over the `X-Forwarded-*` headers.
    """
    values = {name: _last(environ.get(f"HTTP_X_FORWARDED_{name.upper()}", "")) for name in PATTERNS}
    for name, value in _PARAMETER.findall(_last(environ.get("HTTP_FORWARDED", ""))):
        if name.lower() in ("proto", "host"):
            values[name.lower()] = value.strip().strip('"')
    return {name: value for name, value in values.items() if PATTERNS[name].fullmatch(value)}


class ProxyHeadersMiddleware:
    """A WSGI middleware that sets scheme, host and mount point to the values that the proxy sent."""

    def __init__(self, application: WSGIApplication) -> None:
        self.application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Pass a request on with the environment changed by the proxy's headers."""
        forwarded = _forwarded_values(environ)
        changed = {
            "wsgi.url_scheme": forwarded.get("proto", str(environ["wsgi.url_scheme"])).lower(),
            "SCRIPT_NAME": forwarded.get("prefix", "").rstrip("/") + environ.get("SCRIPT_NAME", ""),
        }
        if "host" in forwarded:
            changed["HTTP_HOST"] = forwarded["host"]
            changed[RECEIVED_HOST] = environ.get("HTTP_HOST", "")
        return self.application(environ | changed, start_response)
