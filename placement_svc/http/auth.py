"""Who is asking: `noauth`, for tests and for a service that only this machine can reach.

A token is ``user[:project]`` and every token is believed (`spec/http.md 14`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from flask import Request, g, request
from werkzeug.exceptions import Unauthorized


@dataclass(frozen=True)
class Caller:
    """Who asks: their ids, their role names in lower case, and what their token is for."""

    user_id: str
    project_id: str | None
    roles: frozenset[str]
    scope: str


def _roles(header: str) -> frozenset[str]:
    return frozenset(role.strip().lower() for role in header.split(",") if role.strip())


def noauth(asked: Request) -> Caller:
    """Return the caller that the token of `asked` names.

    Roles come from `X-Roles` alone when it is sent; else the user `admin` is admin and service,
    and nobody else is anything. Raises `Unauthorized` when there is no token.
    """
    token = asked.headers.get("X-Auth-Token")
    if not token:
        raise Unauthorized()
    user, _, project = token.partition(":")
    if "X-Roles" in asked.headers:
        roles = _roles(asked.headers["X-Roles"])
    else:
        roles = frozenset({"admin", "service"} if user == "admin" else ())
    system = asked.headers.get("OpenStack-System-Scope")
    sent_project = asked.headers.get("X-Project-Id") or asked.headers.get("X-Tenant-Id")
    if system:
        scope = "system"
    elif asked.headers.get("X-Domain-Id"):
        scope = "domain"
    else:
        scope = "project"
    return Caller(
        user_id=asked.headers.get("X-User-Id") or user,
        project_id=sent_project or (None if system else project or user),
        roles=roles,
        scope=scope,
    )


STRATEGIES: dict[str, Callable[[Request], Caller]] = {"noauth": noauth}
"""What `PLACEMENT_AUTH` may name."""


def authenticate(strategy: Callable[[Request], Caller]) -> None:
    """Settle who asks; only the root document is for everybody."""
    if request.environ["PATH_INFO"] == "/":
        return
    g.caller = strategy(request)
