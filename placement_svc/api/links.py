"""URLs of the resources of this service (`docs/spec/http.md 11`)."""

from flask import request


def path(*parts: str) -> str:
    """Return the path of a resource, including the mount prefix but not the host."""
    return "/".join((request.script_root, *parts))


def url(*parts: str) -> str:
    """Return the absolute URL of a resource, with the scheme and host that the caller used."""
    return f"{request.scheme}://{request.host}{path(*parts)}"
