"""The query string of GET /allocation_candidates (`docs/spec/candidates.md 2`)."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from placement_svc.domain.errors import (
    BadQueryValue,
    DuplicateQueryKey,
    Invalid,
    MissingQueryValue,
)
from placement_svc.domain.groups import (
    NO_CONDITION,
    CandidatesRequest,
    GroupPolicy,
    Membership,
    RequestGroup,
)
from placement_svc.domain.limits import MAX_SUFFIX_LENGTH
from placement_svc.domain.wording import list_names, list_sorted_names
from placement_svc.schemas.base import UUID, Schema, String, matches, version_hint
from placement_svc.schemas.groups import (
    MEMBER_OF,
    REQUIRED,
    RESOURCES,
    ROOT_REQUIRED,
    Version,
    parse_member_of,
    parse_required,
    parse_resources,
    parse_root_required,
)
from placement_svc.schemas.query import ERROR_PREFIX
from placement_svc.schemas.violations import Violation, quote

Pairs = list[tuple[str, str]]

SUFFIX = rf"[a-zA-Z0-9_-]{{1,{MAX_SUFFIX_LENGTH}}}"
"""The pattern of a request group's suffix (since 1.33)."""

NUMBERED_SUFFIX = "[1-9][0-9]*"
"""The pattern of a request group's suffix from 1.25 to 1.32."""

MAX_LIMIT_DIGITS = 18
"""A `limit` with more digits is ignored: no response has so many candidates."""


class GroupQuery(Schema):
    """The keys of a request group, each followed by the group's suffix.

    The names, `since` and `metadata` of these fields count at all microversions. From 1.25 on, no other
    argument (`pattern`, `min_length`, `choices`) is applied: the parsers in `GROUP_PARSERS` check the values.
    """

    resources = String(metadata=RESOURCES)
    required = String(since="1.17", metadata=REQUIRED)
    member_of = String(since="1.21", metadata=MEMBER_OF)
    in_tree = String(
        since="1.31",
        metadata={
            "description": "A provider in the only tree whose providers may supply the group.",
            "format": "uuid",
        },
    )


class WholeRequestQuery(Schema):
    """The keys that concern the whole request, since request groups have suffixes."""

    limit = String(
        pattern=r"^[1-9][0-9]*$",
        metadata={"description": "The largest number of candidates to return (since 1.16)."},
    )
    group_policy = String(
        choices=tuple(policy.value for policy in GroupPolicy),
        since="1.25",
        metadata={
            "description": (
                "Whether groups with a suffix must have different providers (`isolate`) or may share one"
                " (`none`); required if there is more than one such group."
            )
        },
    )
    root_required = String(
        since="1.35",
        metadata={
            "description": "Traits that the root of the tree must have; a trait with a `!` is forbidden.",
            "pattern": ROOT_REQUIRED,
        },
    )
    same_subtree = String(
        since="1.36",
        metadata={
            "description": (
                "Suffixes of groups whose providers must be in one subtree: one of them is an ancestor of all"
                " others, or all are the same provider. If the key is repeated, each value is a condition."
            ),
            "pattern": f"^{SUFFIX}(,{SUFFIX})*$",
            "repeats": True,
        },
    )


GROUP_KEYS = tuple(GroupQuery().fields)
_GROUP_KEY = re.compile(rf"({'|'.join(GROUP_KEYS)})(.*)")


class UnsuffixedQuery(GroupQuery):
    """All keys of the microversions in which request groups have no suffixes (1.10 to 1.24)."""

    resources = String(required=True)
    limit = String(since="1.16")

    @classmethod
    def introduced(cls, key: str) -> Version | None:
        """Return the microversion that introduced a key, including the keys of newer microversions."""
        return super().introduced(key) or _introduced(key)


def _introduced(key: str) -> Version | None:
    """Return the microversion that introduced a key; None for a key of 1.10 and for an unknown key."""
    match = _GROUP_KEY.fullmatch(key)
    if match is None:
        return WholeRequestQuery.introduced(key)
    field, suffix = match.groups()
    versions: list[Version | None] = [GroupQuery.introduced(field)]
    if suffix:
        if not re.fullmatch(SUFFIX, suffix):
            return None
        versions.append((1, 25) if re.fullmatch(NUMBERED_SUFFIX, suffix) else (1, 33))
    return max(filter(None, versions), default=None)


def check_group_count(pairs: Pairs, max_groups: int) -> None:
    """Raise `Invalid` if `pairs` contain more than `max_groups` request groups."""
    suffixes = {match[2] for key, _ in pairs if (match := _GROUP_KEY.fullmatch(key))}
    if len(suffixes) > max_groups:
        raise Invalid(f"{ERROR_PREFIX}there are more than {max_groups} request groups")


def parse_request(pairs: Pairs, version: Version) -> CandidatesRequest:
    """Return the request that the pairs of a query string describe; raises `Invalid` for the first error."""
    _check_keys(pairs, version)
    root_required = _parse_root_required(_values(pairs, "root_required"), version)
    same_subtree = tuple(_parse_same_subtree(value) for value in _values(pairs, "same_subtree"))
    groups = _parse_groups(pairs, version)
    if version >= (1, 36):
        _check_resourceless(groups, same_subtree)
    else:
        _check_all_have_resources(groups)
    _check_contradictions(groups)
    limits, group_policies = _values(pairs, "limit"), _values(pairs, "group_policy")
    if not group_policies and sum(1 for group in groups if group.suffix) > 1:
        raise Invalid(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )
    return CandidatesRequest(
        groups=groups,
        root_required=root_required,
        same_subtree=same_subtree,
        group_policy=GroupPolicy(group_policies[0]) if group_policies else GroupPolicy.NONE,
        limit=int(limits[0]) if limits and len(limits[0]) <= MAX_LIMIT_DIGITS else None,
    )


def _values(pairs: Pairs, key: str) -> list[str]:
    return [value for k, value in pairs if k == key]


def _group_key_patterns(version: Version) -> list[str]:
    """Return the pattern of each kind of group key at a microversion with suffixes, in alphabetical order."""
    suffix = SUFFIX if version >= (1, 33) else NUMBERED_SUFFIX
    return [f"^{key}({suffix})?$" for key in sorted(GroupQuery.at(version).fields)]


def _check_suffixed_keys(pairs: Pairs, version: Version) -> None:
    """Raise `Invalid` for keys that a microversion with suffixes does not have.

    The error names the patterns of group keys only, although the keys for the whole request are valid too.
    """
    patterns = _group_key_patterns(version)
    group_keys, request_keys = "|".join(patterns), WholeRequestQuery.at(version).fields
    unknown = sorted({key for key, _ in pairs if key not in request_keys and not matches(group_keys, key)})
    if unknown:
        keys = list_sorted_names(unknown, quote)
        verb = "does" if len(unknown) == 1 else "do"
        reason = f"{keys} {verb} not match any of the regexes: {', '.join(map(repr, patterns))}"
        hint = version_hint(unknown, _introduced)
        violation = Violation("additionalProperties", False, reason, dict(pairs), hint=hint)
        raise Invalid(f"{ERROR_PREFIX}{violation}")


def _check_keys(pairs: Pairs, version: Version) -> None:
    if version >= (1, 25):
        _check_suffixed_keys(pairs, version)
    else:
        UnsuffixedQuery.at(version).check(dict(pairs), ERROR_PREFIX)
    whole_request = WholeRequestQuery.at(version)
    known = [(key, value) for key, value in pairs if key in whole_request.fields]
    for query in (dict(known), *({key: value} for key, value in known)):
        whole_request.check(query, ERROR_PREFIX)


def _parse_groups(pairs: Pairs, version: Version) -> tuple[RequestGroup, ...]:
    """Return all request groups in the order of their first appearance; raises `Invalid`.

    The error concerns the first key with an invalid value.
    """
    groups: dict[str, RequestGroup] = {}
    for key in dict.fromkeys(key for key, _ in pairs):
        match = _GROUP_KEY.fullmatch(key)
        if match:
            field, suffix = match.groups()
            value = GROUP_PARSERS[field](key, _values(pairs, key), version)
            group = groups.get(suffix, RequestGroup(suffix))
            groups[suffix] = replace(group, **{field: value})
    return tuple(groups.values())


def _parse_in_tree(value: str) -> str:
    uuid = value.strip()
    if not UUID.fullmatch(uuid):
        raise Invalid(f"{ERROR_PREFIX}Expected 'in_tree' parameter to be a format of uuid. Got: {uuid}")
    return uuid


GROUP_PARSERS: dict[str, Callable[[str, list[str], Version], Any]] = {
    "resources": lambda _key, values, _version: [parse_resources(value) for value in values][-1],
    "required": lambda _key, values, version: parse_required(values, version),
    "member_of": parse_member_of,
    "in_tree": lambda _key, values, _version: [_parse_in_tree(value) for value in values][-1],
}
"""For each key of `GroupQuery`, which is also a field of `RequestGroup`, the parser of its values.

A parser gets the key with its suffix, all values of it, and the microversion.
"""


def _parse_root_required(values: list[str], version: Version) -> Membership:
    if not values:
        return NO_CONDITION
    if len(values) > 1:
        raise DuplicateQueryKey("Query parameter 'root_required' may be specified only once.")
    traits = parse_root_required(values[0], version)
    if traits.contradictions:
        names = list_sorted_names([name for any_of in traits.contradictions for name in any_of])
        raise BadQueryValue(f"Conflicting required and forbidden traits found in root_required: {names}")
    return traits


def _parse_same_subtree(value: str) -> frozenset[str]:
    suffixes = frozenset(piece.strip() for piece in value.split(","))
    if "" in suffixes:
        raise BadQueryValue("Empty string (unsuffixed group) can not be specified in `same_subtree`")
    return suffixes


def _check_resourceless(groups: Iterable[RequestGroup], same_subtree: Iterable[frozenset[str]]) -> None:
    if not any(group.resources for group in groups):
        raise MissingQueryValue("There must be at least one resources or resources[$S] parameter.")
    in_same_subtree = frozenset[str]().union(*same_subtree)
    unlisted = [
        group.suffix for group in groups if not group.resources and group.suffix not in in_same_subtree
    ]
    if unlisted:
        raise BadQueryValue(
            "Resourceless suffixed group request should be specified in `same_subtree` query param:"
            f" bad group(s) - {_list_suffixes(unlisted)}"
        )
    unknown = sorted(in_same_subtree - {group.suffix for group in groups})
    if unknown:
        raise BadQueryValue(
            f"Real suffixes should be specified in `same_subtree`: {_list_suffixes(unknown)} don't exist."
        )


def _list_suffixes(suffixes: Iterable[str]) -> str:
    return f"[{list_names([repr(suffix) for suffix in suffixes])}]"


def _check_all_have_resources(groups: Iterable[RequestGroup]) -> None:
    resourceless = [group for group in groups if not group.resources]
    if keys_without_resources := [
        f"required{group.suffix}" for group in resourceless if group.required.any_of
    ]:
        raise Invalid(
            "All traits parameters must be associated with resources. Found the following orphaned"
            f" traits keys: {list_names(keys_without_resources)}"
        )
    if keys_without_resources := [f"member_of{group.suffix}" for group in resourceless if group.member_of]:
        raise Invalid(
            "All member_of parameters must be associated with resources. Found the following orphaned"
            f" member_of keys: {list_names(keys_without_resources)}"
        )
    if resourceless:
        raise Invalid("All request groups must specify resources.")
    if not any(True for _ in groups):
        raise Invalid("At least one request group (`resources` or `resources{$S}`) is required.")


def _check_contradictions(groups: Iterable[RequestGroup]) -> None:
    conflicts = []
    for group in groups:
        names = sorted({name for any_of in group.required.contradictions for name in any_of})
        if names:
            conflicts.append(f"required{group.suffix}: ({list_names(names)})")
    if conflicts:
        raise Invalid(
            "Conflicting required and forbidden traits found in the following traits keys: "
            + list_names(conflicts)
        )
