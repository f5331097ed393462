"""Helpers of the pages: their query, the caller's permissions, and the links between them."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from flask import g, request, url_for
from werkzeug.exceptions import Forbidden

from placement_svc.api.context import load_pairs
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.http.policy import enforce
from placement_svc.schemas.base import Schema

FREE_TEXT_KEYS = frozenset({"project_id", "user_id", "text"})
"""The keys whose values may consist of blanks, as names of providers and ids of projects and users may."""

PROVIDER_RULES = {
    "providers": ("resource_providers:list",),
    "inventories": ("resource_providers:inventories:list", "resource_providers:usages"),
}
"""The policy rules of the endpoints that return providers with their names, and their inventories."""


def filled_pairs() -> list[tuple[str, str]]:
    """Return the keys and values of the query, without the fields that a form left empty.

    Blanks around a value are removed: they come from where it was copied.
    """
    stripped = ((key, value if key in FREE_TEXT_KEYS else value.strip()) for key, value in load_pairs())
    return [(key, value) for key, value in stripped if value]


def load_form(schema: type[Schema]) -> Any:
    """Return the query as `schema` loads it, without empty fields; raise `Invalid`."""
    return schema.at(g.microversion).check(dict(filled_pairs()), QUERY_ERROR)


def allows(rule: str, target: Mapping[str, str] | None = None) -> bool:
    """Return whether the caller satisfies the policy rule of an endpoint; `target` is that of `enforce`."""
    try:
        enforce(rule, target)
    except Forbidden:
        return False
    return True


def visible_parts(rules: Mapping[str, Sequence[str]]) -> dict[str, bool]:
    """Return which parts of a page the caller may see; `rules` has the policy rules of each part."""
    return {part: all(allows(rule, {}) for rule in of_part) for part, of_part in rules.items()}


def visible_project(rule: str, wanted: str | None) -> tuple[bool, str | None]:
    """Return whether the caller satisfies a rule on projects, and the project that restricts the list.

    A caller who may not see all projects, and names none, sees its own.
    """
    if allows(rule, {"project_id": wanted} if wanted else {}):
        return True, wanted
    own = g.caller.project_id
    if wanted is None and own and allows(rule, {"project_id": own}):
        return True, own
    return False, wanted


def link_to(endpoint: str, **values: Any) -> str:
    """Return the URL of a page, as Flask's `url_for` does, with `;` encoded: it separates keys of a query."""
    return url_for(endpoint, **values).replace(";", "%3B")


def here(endpoint: str | None = None, **changes: str | None) -> str:
    """Return the URL of this page with other values of some keys; None removes a key.

    With `endpoint`, it is the URL of another page with the same query.
    """
    pairs = [(key, value) for key, value in filled_pairs() if key not in changes]
    pairs += [(key, value) for key, value in changes.items() if value is not None]
    path = url_for(endpoint) if endpoint else f"{request.script_root}{request.path}"
    return f"{path}?{urlencode(pairs)}" if pairs else path


def sorted_here(key: str) -> str:
    """Return the URL of this page sorted by `key`: descending, or ascending if it is descending already."""
    descending = f"-{key}"
    return here(sort_by=key if request.args.get("sort_by") == descending else descending, marker=None)
