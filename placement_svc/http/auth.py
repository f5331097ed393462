"""Authentication (`docs/spec/http.md 14`)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from flask import Request, g, request


@dataclass(frozen=True)
class Caller:
    """An authenticated caller: ids, role names in lower case, and the scope of the token.

    The scope is the system if `system_scope` is set, else a domain if `domain_id` is set, else a project.
    `is_verified` is false if nothing vouches for the ids: they then are text that the client chose.
    """

    user_id: str
    project_id: str | None
    roles: frozenset[str]
    domain_id: str | None = None
    system_scope: str | None = None
    is_verified: bool = True


@dataclass(frozen=True)
class AuthStrategy:
    """One way to authenticate callers, which the setting `PLACEMENT_AUTH` selects.

    `identify` returns the caller of a request, or raises an `HTTPException` if it cannot authenticate
    the request. The paths of `exempt` need no authentication. `refresh` reloads a file of tokens that has
    changed.
    """

    identify: Callable[[Request], Caller]
    exempt: Collection[str] = ("/", "")
    refresh: Callable[[], object] = lambda: None


def role_names(names: Collection[str]) -> frozenset[str]:
    """Return role names in the form in which they are compared: stripped, in lower case."""
    return frozenset(name.strip().lower() for name in names if name.strip())


_ENTITIES = ("USER", "USER_DOMAIN", "PROJECT", "PROJECT_DOMAIN", "DOMAIN", "TENANT")
_IDENTITY_HEADERS = (
    *(f"{entity}_{attribute}" for entity in _ENTITIES for attribute in ("ID", "NAME")),
    *("USER", "TENANT", "ROLE", "ROLES", "CATALOG", "IDENTITY_STATUS", "SYSTEM_SCOPE", "IS_ADMIN_PROJECT"),
)
IDENTITY_KEYS = (
    *(f"HTTP_X_{prefix}{header}" for prefix in ("", "SERVICE_") for header in _IDENTITY_HEADERS),
    "HTTP_OPENSTACK_SYSTEM_SCOPE",
)
"""Keys of the WSGI environment for the headers in which identity middleware passes the caller on."""


def authenticate(strategy: AuthStrategy) -> None:
    """Set `g.caller` to the caller of the current request; raise what `strategy.identify` raises.

    Identity headers are removed from the request, because a caller can forge them.
    """
    environ = request.environ
    if environ["PATH_INFO"] not in strategy.exempt:
        g.caller = strategy.identify(request)
    for key in IDENTITY_KEYS:
        environ.pop(key, None)
