"""URLs of this service's own resources (`docs/spec/http.md 11`)."""

from flask import request


def path(*parts: str) -> str:
    """Return the path of a resource, the mount prefix included, without the host."""
    return "/".join((request.script_root, *parts))


def url(*parts: str) -> str:
    """Return the absolute URL of a resource, as the caller sees this host."""
    return f"{request.scheme}://{request.host}{path(*parts)}"
