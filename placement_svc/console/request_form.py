"""The form of a request for allocation candidates: its fields from a query, and a query from pasted text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from placement_svc.schemas.query import parse_pairs

Pairs = list[tuple[str, str]]

OWN_KEYS = frozenset({"candidate", "explain", "fits", "blank", "q", "add_group"})
"""The keys of the page; all others are those of the request, and `root` is that of its explanation."""

GROUP_FIELDS = ("resources", "required", "member_of", "in_tree")
_GROUP_KEY = re.compile(rf"({'|'.join(GROUP_FIELDS)})([a-zA-Z0-9_-]*)")

REPEATABLE = frozenset({"required", "member_of", "same_subtree"})
"""The keys that have one more empty field, as the request may repeat them."""

WHOLE_FIELDS = ("root_required", "same_subtree")

_URL = re.compile(r"allocation_candidates(?:/\w+)?\?([^\s'\"]*)")


@dataclass(frozen=True)
class FormField:
    """The inputs of one key; `kind` is the key without the suffix of its group."""

    key: str
    kind: str
    values: Sequence[str]


@dataclass(frozen=True)
class FormGroup:
    """The fields of one request group."""

    suffix: str
    fields: Sequence[FormField]


@dataclass(frozen=True)
class RequestForm:
    """The form of a request: its groups, the keys that concern all groups, and keys that have no field.

    `new_suffix` is that of the group that the button adds.
    """

    groups: Sequence[FormGroup]
    fields: Sequence[FormField]
    group_policy: str
    limit: str
    others: Pairs
    new_suffix: str


def split_pairs(pairs: Pairs) -> tuple[Pairs, dict[str, str]]:
    """Return the keys and values of the request, and those of the page."""
    own = {key: value for key, value in pairs if key in OWN_KEYS}
    return [pair for pair in pairs if pair[0] not in OWN_KEYS], own


def parse_pasted(text: str) -> Pairs:
    """Return the keys and values in a query, a URL or a curl command; raise `Invalid`."""
    found = _URL.search(text)
    query = found[1] if found else text.strip().strip("'\"").removeprefix("?")
    return [(key, value) for key, value in parse_pairs(query.encode()) if value.strip()]


def form_of(pairs: Pairs, blank: str | None) -> RequestForm:
    """Return the form of a request; `blank` is the suffix of a group without values yet."""
    groups: dict[str, dict[str, list[str]]] = {"": {}}
    whole: dict[str, list[str]] = {}
    for key, value in pairs:
        match = _GROUP_KEY.fullmatch(key)
        if match:
            groups.setdefault(match[2], {}).setdefault(match[1], []).append(value)
        else:
            whole.setdefault(key, []).append(value)
    if blank:
        groups.setdefault(blank, {})
    known = {*WHOLE_FIELDS, "group_policy", "limit", "root"}
    return RequestForm(
        groups=[
            FormGroup(suffix, [_field(kind, suffix, values) for kind in GROUP_FIELDS])
            for suffix, values in groups.items()
        ],
        fields=[_field(kind, "", whole) for kind in WHOLE_FIELDS],
        group_policy=whole.get("group_policy", [""])[-1],
        limit=whole.get("limit", [""])[-1],
        others=[(key, value) for key, values in whole.items() if key not in known for value in values],
        new_suffix=next(f"_{number}" for number in range(1, len(groups) + 1) if f"_{number}" not in groups),
    )


def _field(kind: str, suffix: str, values: dict[str, list[str]]) -> FormField:
    sent = values.get(kind, [])
    return FormField(f"{kind}{suffix}", kind, [*sent, ""] if kind in REPEATABLE or not sent else sent)
