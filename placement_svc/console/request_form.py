"""The form of a request for allocation candidates: its fields from a query, and a query from pasted text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement_svc.domain.groups import GroupPolicy
from placement_svc.domain.pasted_query import asks_for_capacity, request_query
from placement_svc.schemas.candidates_query import ExtendedRequestQuery
from placement_svc.schemas.explanation import ExplanationQuery
from placement_svc.schemas.fits import FitsQuery
from placement_svc.schemas.query import parse_pairs
from placement_svc.schemas.scalars import SUFFIX

Pairs = list[tuple[str, str]]

SHOWN_KEYS = frozenset({"candidate", "explain", "fits", "marker"})
"""The keys that say which parts of the answer the page shows."""

OWN_KEYS = SHOWN_KEYS | {"blank", "q", "add_group"}
"""The keys of the page; all others are those of the request, and `root` is that of its explanation."""


@dataclass(frozen=True)
class FieldKind:
    """The field of a key: its label and a hint, and what its input completes.

    `names` is a list of ``names.json``, or what `console.js` completes from the form itself. A key that
    `repeats` has one more empty input. A key with `choices` is a list.
    """

    key: str
    label: str
    hint: str = ""
    names: str = ""
    repeats: bool = False
    choices: tuple[str, ...] = ()


GROUP_KINDS = (
    FieldKind("resources", "Resources", "VCPU:4,MEMORY_MB:8192", "amounts"),
    FieldKind("required", "Traits", "TRAIT, !TRAIT or in:A,B", "traits", repeats=True),
    FieldKind("member_of", "Aggregates", "UUID, in:A,B or !UUID", "aggregates", repeats=True),
    FieldKind("in_tree", "In tree of", "UUID or !UUID", repeats=True),
)
"""The fields of each group."""

REQUEST_KINDS = (
    FieldKind("group_policy", "Group policy", choices=tuple(policy.value for policy in GroupPolicy)),
    FieldKind("isolate", "Isolated groups", "_1,_2", "suffixes", repeats=True),
    FieldKind("same_subtree", "Same subtree", "_1,_2 or _1,!_2", "suffixes", repeats=True),
    FieldKind("root_required", "Traits of the root", "TRAIT, !TRAIT or in:A,B", "traits", repeats=True),
    FieldKind(
        "root_member_of", "Aggregates of the root", "UUID, in:A,B or !UUID", "aggregates", repeats=True
    ),
    FieldKind("can_split", "Classes to split", "VCPU,MEMORY_MB", "resource_classes", repeats=True),
    FieldKind("preferred", "Preferred traits", "TRAIT,TRAIT", "traits", repeats=True),
    FieldKind("order_by", "Order by", "spread:VCPU", "orders"),
    FieldKind("ignore_consumer", "Ignore consumer", "UUID", repeats=True),
    FieldKind("limit", "Limit", "20"),
    FieldKind("root", "Explain only this host", "name or uuid"),
)
"""The fields of the whole request. Groups have no key that is also here."""

_GROUP_KEY = re.compile(rf"({'|'.join(kind.key for kind in GROUP_KINDS)})({SUFFIX})?")

_NOT_OF_THE_REQUEST = {*ExplanationQuery().fields, *FitsQuery().fields, "stale"} - {
    *ExtendedRequestQuery().fields,
    "root",
}
"""The keys of a URL of the API that say how to explain or count a request, or where to read."""

_SEPARATOR = re.compile(r"([,:])")
"""A character that separates the parts of a value."""


@dataclass(frozen=True)
class FormField:
    """The inputs of a key, which is that of `kind` with the suffix of its group."""

    key: str
    kind: FieldKind
    values: Sequence[str]


@dataclass(frozen=True)
class FormGroup:
    """The fields of one request group."""

    suffix: str
    fields: Sequence[FormField]


@dataclass(frozen=True)
class RequestForm:
    """The form of a request: its groups, the keys that concern all groups, and keys that have no field.

    `added` is the suffix of the group that was added last, None without one. `more_blank` has the suffixes of
    the groups without values, and that of the group that the button adds.
    """

    groups: Sequence[FormGroup]
    fields: Sequence[FormField]
    others: Pairs
    added: str | None
    more_blank: str


def without_blanks(value: str) -> str:
    """Return a value as somebody has typed it, without the blanks around its parts: ``VCPU:1, DISK_GB:5``."""
    # A pattern for the blanks would look for a separator behind each of them: 16,000 blanks took 10 s.
    return "".join(map(str.strip, _SEPARATOR.split(value)))


def split_page_keys(pairs: Pairs) -> tuple[Pairs, dict[str, str]]:
    """Return the keys and values of the request, and those of the page.

    The keys with which the API explains or counts a request, or reads from a standby, are omitted.
    """
    own = {key: value for key, value in pairs if key in OWN_KEYS}
    return [pair for pair in pairs if pair[0] not in OWN_KEYS | _NOT_OF_THE_REQUEST], own


def parse_pasted(text: str) -> Pairs:
    """Return the keys and values of the request in a query, a URL or a curl command; raise `Invalid`.

    The `limit` of the capacity for a request is the size of a page of hosts, not that of the request.
    """
    query, *_ = request_query(text).partition("#")
    pairs, _ = split_page_keys(parse_pairs(query.encode()))
    has_other_limit = asks_for_capacity(text)
    return [
        (key, value) for key, value in pairs if value.strip() and not (has_other_limit and key == "limit")
    ]


def is_request(pairs: Pairs) -> bool:
    """Return whether some key is one of a request group."""
    return any(_GROUP_KEY.fullmatch(key) for key, _ in pairs)


def label_of(key: str) -> str | None:
    """Return the label of the field of a key, with the suffix of its group; None if the key has no field."""
    match = _GROUP_KEY.fullmatch(key)
    name, suffix = (match[1], match[2] or "") if match else (key, "")
    label = next((kind.label for kind in (*GROUP_KINDS, *REQUEST_KINDS) if kind.key == name), None)
    return f"{label} {suffix}".strip() if label else None


def form_of(pairs: Pairs, blank: str | None) -> RequestForm:
    """Return the form of a request; `blank` has the suffixes of groups without values yet.

    The form sends the same pairs: groups in the same order, and the values of each key in theirs.
    """
    groups: dict[str, dict[str, list[str]]] = {}
    whole: dict[str, list[str]] = {}
    for key, value in pairs:
        match = _GROUP_KEY.fullmatch(key)
        if match:
            groups.setdefault(match[2] or "", {}).setdefault(match[1], []).append(value)
        else:
            whole.setdefault(key, []).append(value)
    if "" not in groups:
        groups = {"": {}} | groups
    blank_suffixes = blank.split(",") if blank else []
    for suffix in blank_suffixes:
        groups.setdefault(suffix, {})
    new = next(f"_{number}" for number in range(1, len(groups) + 1) if f"_{number}" not in groups)
    known = {kind.key for kind in REQUEST_KINDS}
    return RequestForm(
        groups=[
            FormGroup(suffix, [_field(kind, suffix, values) for kind in GROUP_KINDS])
            for suffix, values in groups.items()
        ],
        fields=[_field(kind, "", whole) for kind in REQUEST_KINDS],
        others=[(key, value) for key, values in whole.items() if key not in known for value in values],
        added=blank_suffixes[-1] if blank_suffixes else None,
        more_blank=",".join([*(suffix for suffix, values in groups.items() if suffix and not values), new]),
    )


def _field(kind: FieldKind, suffix: str, values: Mapping[str, Sequence[str]]) -> FormField:
    sent = values.get(kind.key, [])
    return FormField(f"{kind.key}{suffix}", kind, [*sent, ""] if kind.repeats or not sent else sent)
