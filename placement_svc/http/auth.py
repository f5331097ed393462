"""Who is asking (`docs/spec/http.md 14`)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from flask import Request, g, request


@dataclass(frozen=True)
class Caller:
    """Who asks: their ids, their role names in lower case, and what their token is for.

    It is for the whole system if there is a `system_scope`, else for a domain if there is a
    `domain_id`, else for a project.
    """

    user_id: str
    project_id: str | None
    roles: frozenset[str]
    domain_id: str | None = None
    system_scope: str | None = None


@dataclass(frozen=True)
class Strategy:
    """One way to know callers.

    `identify` returns who sent a request, and raises an `HTTPException` if that is nobody known;
    the paths of `exempt` are for everybody.
    """

    identify: Callable[[Request], Caller]
    exempt: Collection[str] = ("/", "")


def role_names(names: Collection[str]) -> frozenset[str]:
    """Return `names` as roles are compared: without blanks around them, in lower case."""
    return frozenset(name.strip().lower() for name in names if name.strip())


_WHO = ("USER", "USER_DOMAIN", "PROJECT", "PROJECT_DOMAIN", "DOMAIN", "TENANT")
_TOLD = (
    *(f"{who}_{what}" for who in _WHO for what in ("ID", "NAME")),
    *("USER", "TENANT", "ROLE", "ROLES", "CATALOG", "IDENTITY_STATUS", "SYSTEM_SCOPE", "IS_ADMIN_PROJECT"),
)
IDENTITY_KEYS = (
    *(f"HTTP_X_{whose}{told}" for whose in ("", "SERVICE_") for told in _TOLD),
    "HTTP_OPENSTACK_SYSTEM_SCOPE",
)
"""Where the WSGI environment has the headers by which identity services tell who asks."""


def authenticate(strategy: Strategy) -> None:
    """Settle who asks as `g.caller`, which alone counts from here on.

    The headers that tell the same are removed: the caller may have sent them.
    """
    environ = request.environ
    if environ["PATH_INFO"] not in strategy.exempt:
        g.caller = strategy.identify(request)
    for key in IDENTITY_KEYS:
        environ.pop(key, None)
