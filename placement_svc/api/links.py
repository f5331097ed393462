"""URLs of the resources of this service (`docs/spec/http.md 11`)."""

from contextlib import suppress

from flask import request
from werkzeug.urls import iri_to_uri
from werkzeug.wsgi import get_host

from placement_svc.http.proxy import PATTERNS

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def path(*parts: str) -> str:
    """Return the path of a resource, including the mount prefix but not the host."""
    return "/".join((request.script_root, *parts))


def url(*parts: str) -> str:
    """Return the absolute URL of a resource, with the scheme and host that the caller used."""
    return f"{request.scheme}://{_host()}{path(*parts)}"


def _host() -> str:
    """Return the host of the request with its port, unless that is the default.

    If the request names none, or a malformed one, it is the address of the server. Unlike `request.host`,
    this allows names with an underscore, which containers often have.
    """
    sent: str = request.environ.get("HTTP_HOST", "")
    if PATTERNS["host"].fullmatch(sent):
        # This raises a ValueError for a port or a label that no URL can have.
        with suppress(ValueError):
            iri_to_uri(f"{request.scheme}://{sent}")
            return sent.removesuffix(_DEFAULT_PORTS[request.scheme])
    return get_host({**request.environ, "HTTP_HOST": None})
