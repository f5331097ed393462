"""No authentication (`PLACEMENT_AUTH=noauth`), for tests and for a service on the loopback interface.

A token is ``user[:project]``, and every token is accepted (`docs/spec/http.md 14`).
"""

from flask import Request
from werkzeug.exceptions import Unauthorized

from placement_svc.http.auth import AuthStrategy, Caller, role_names


def identify(request: Request) -> Caller:
    """Return the caller that the token of `request` names.

    The roles are those of `X-Roles` if that header is sent. Otherwise the user `admin` has the roles
    admin and service, and other users have none. The project is that of `X-Project-Id` if it is sent, even if
    it is empty, else that of the token. Raises `Unauthorized` if there is no token.
    """
    token = request.headers.get("X-Auth-Token")
    if not token:
        raise Unauthorized()
    user, _, project = token.partition(":")
    if "X-Roles" in request.headers:
        roles = role_names(request.headers["X-Roles"].split(","))
    else:
        roles = frozenset({"admin", "service"} if user == "admin" else ())
    system_scope = request.headers.get("OpenStack-System-Scope") or None
    project_id = request.headers.get("X-Project-Id")
    if project_id is None:
        own_project = None if system_scope else project or user
        project_id = own_project or request.headers.get("X-Tenant-Id")
    return Caller(
        user_id=request.headers.get("X-User-Id") or user,
        project_id=project_id or None,
        roles=roles,
        domain_id=request.headers.get("X-Domain-Id") or None,
        system_scope=system_scope,
        is_verified=False,
    )


NOAUTH = AuthStrategy(identify, exempt=("/",))
