"""Who may do what (`spec/http.md 15`).

A rule is a name and the test of the caller behind it. Every rule wants a project's token.
"""

from collections.abc import Callable, Iterable

from flask import current_app, g, request
from werkzeug.exceptions import Forbidden

from placement_svc.http.auth import Caller
from placement_svc.schemas.query import parse_pairs

Rule = Callable[[Caller], bool]


def _admin_or_service(caller: Caller) -> bool:
    return not caller.roles.isdisjoint({"admin", "service"})


def _service(caller: Caller) -> bool:
    return "service" in caller.roles


def _own_usages(caller: Caller) -> bool:
    return _admin_or_service(caller) or ("reader" in caller.roles and _asked_project() == caller.project_id)


def _asked_project() -> str | None:
    """Return the project that the query names, read as the endpoint will read it."""
    return dict(parse_pairs(request.query_string)).get("project_id")


def _rules(prefix: str, *names: str) -> Iterable[tuple[str, Rule]]:
    return ((f"placement:{prefix}:{name}", _admin_or_service) for name in names)


RULES: dict[str, Rule] = {
    **dict(_rules("resource_providers", "list", "create", "show", "update", "delete", "usages")),
    **dict(_rules("resource_providers:inventories", "list", "create", "show", "update", "delete")),
    **dict(_rules("resource_providers:aggregates", "list", "update")),
    **dict(_rules("resource_providers:traits", "list", "update", "delete")),
    **dict(_rules("resource_providers:allocations", "list")),
    **dict(_rules("resource_classes", "list", "create", "show", "update", "delete")),
    **dict(_rules("traits", "list", "show", "update", "delete")),
    **dict(_rules("aggregates", "list", "show")),
    **dict(_rules("allocations", "manage", "list", "update", "delete")),
    **dict(_rules("allocation_candidates", "list")),
    "placement:usages": _own_usages,
    "placement:reshaper:reshape": _service,
}
"""Each rule of the profile `secure`; in `legacy` the role admin satisfies every one of them."""


def enforce(rule: str) -> None:
    """Refuse the present request with 403 unless its caller satisfies `rule`."""
    caller: Caller = g.caller
    if caller.scope != "project":
        raise Forbidden(rule)
    legacy = current_app.extensions["settings"].policy_profile == "legacy"
    if not (RULES[rule](caller) or (legacy and "admin" in caller.roles)):
        raise Forbidden(f"Policy does not allow {rule} to be performed.")
