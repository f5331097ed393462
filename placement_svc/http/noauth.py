"""Callers who are believed, for tests and for a service that only this machine can reach.

A token is ``user[:project]`` and every token is believed (`docs/spec/http.md 14`).
"""

from flask import Request
from werkzeug.exceptions import Unauthorized

from placement_svc.http.auth import Caller, Strategy, role_names


def identify(asked: Request) -> Caller:
    """Return the caller that the token of `asked` names.

    Roles come from `X-Roles` alone when it is sent; else the user `admin` is admin and service,
    and nobody else is anything. Raises `Unauthorized` when there is no token.
    """
    token = asked.headers.get("X-Auth-Token")
    if not token:
        raise Unauthorized()
    user, _, project = token.partition(":")
    if "X-Roles" in asked.headers:
        roles = role_names(asked.headers["X-Roles"].split(","))
    else:
        roles = frozenset({"admin", "service"} if user == "admin" else ())
    system_scope = asked.headers.get("OpenStack-System-Scope") or None
    sent_project = asked.headers.get("X-Project-Id") or asked.headers.get("X-Tenant-Id")
    return Caller(
        user_id=asked.headers.get("X-User-Id") or user,
        project_id=sent_project or (None if system_scope else project or user),
        roles=roles,
        domain_id=asked.headers.get("X-Domain-Id") or None,
        system_scope=system_scope,
    )


NOAUTH = Strategy(identify, exempt=("/",))
