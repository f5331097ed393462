"""The query of GET /allocation_candidates (`docs/spec/candidates.md 2`)."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from placement_svc.domain.errors import (
    BadQueryValue,
    DuplicateQueryKey,
    Invalid,
    MissingQueryValue,
)
from placement_svc.domain.groups import NO_CONDITION, CandidatesRequest, Membership, RequestGroup
from placement_svc.domain.limits import MAX_SUFFIX_LENGTH
from placement_svc.schemas.base import UUID, Map, Schema, String, check
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

Pairs = list[tuple[str, str]]

SUFFIX = rf"[a-zA-Z0-9_-]{{1,{MAX_SUFFIX_LENGTH}}}"
"""What a request group's suffix looks like, since 1.33."""

LONGEST_LIMIT = 18
"""Digits of a limit that means anything: no answer is longer."""


class GroupQuery(Schema):
    """The keys of a request group; its suffix stands behind each of them."""

    resources = String(metadata=RESOURCES)
    required = String(since="1.17", metadata=REQUIRED)
    member_of = String(since="1.21", metadata=MEMBER_OF)
    in_tree = String(
        since="1.31",
        metadata={"description": "A provider from whose tree the group is supplied.", "format": "uuid"},
    )


class WideQuery(Schema):
    """The keys that are about the whole request, since request groups have suffixes."""

    limit = String(
        pattern=r"^[1-9][0-9]*$", metadata={"description": "So many candidates at most (since 1.16)."}
    )
    group_policy = String(
        choices=("none", "isolate"),
        metadata={
            "description": (
                "Whether groups with a suffix are supplied by different providers (`isolate`) or may share"
                " one (`none`); needed as soon as there are two of them."
            )
        },
    )
    root_required = String(
        since="1.35",
        metadata={
            "description": "Traits that the root of the tree has; those with a `!` it has not.",
            "pattern": ROOT_REQUIRED,
            "examples": ["COMPUTE_NODE,!CUSTOM_WINDOWS_LICENSED"],
        },
    )
    same_subtree = String(
        since="1.36",
        metadata={
            "description": (
                "Suffixes of groups of whose suppliers one is an ancestor of all others, or all are the same."
                " If the key is repeated, each of its values counts."
            ),
            "pattern": f"^{SUFFIX}(,{SUFFIX})*$",
            "examples": ["_CPU,_NIC"],
            "repeats": True,
        },
    )


GROUP_KEYS = tuple(GroupQuery().fields)
_GROUP_KEY = re.compile(rf"({'|'.join(GROUP_KEYS)})(.*)")


class UnsuffixedQuery(GroupQuery):
    """The keys before request groups had suffixes (1.10 to 1.24)."""

    resources = String(required=True)
    limit = String(since="1.16")


def check_size(pairs: Pairs, most: int) -> None:
    """Refuse `pairs` that make more than `most` request groups; raises `Invalid`."""
    suffixes = {found[2] for key, _ in pairs if (found := _GROUP_KEY.fullmatch(key))}
    if len(suffixes) > most:
        raise Invalid(f"{ERROR_PREFIX}there are more than {most} request groups")


def parse_request(pairs: Pairs, version: Version) -> CandidatesRequest:
    """Return the request that the query `pairs` make; raises `Invalid` for the first fault."""
    _check_keys(pairs, version)
    root_required = _parse_root_required(_values(pairs, "root_required"), version)
    same_subtree = tuple(_parse_same_subtree(value) for value in _values(pairs, "same_subtree"))
    groups = _parse_groups(pairs, version)
    if version >= (1, 36):
        _check_resourceless(groups, same_subtree)
    else:
        _check_all_have_resources(groups)
    _check_contradictions(groups)
    limits, policies = _values(pairs, "limit"), _values(pairs, "group_policy")
    if not policies and sum(1 for group in groups if group.suffix) > 1:
        raise Invalid(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )
    return CandidatesRequest(
        groups=groups,
        root_required=root_required,
        same_subtree=same_subtree,
        isolate=policies[:1] == ["isolate"],
        limit=int(limits[0]) if limits and len(limits[0]) <= LONGEST_LIMIT else None,
    )


def _values(pairs: Pairs, key: str) -> list[str]:
    return [value for k, value in pairs if k == key]


def _keys(version: Version) -> str:
    """Return the pattern of the keys that a microversion with suffixes knows."""
    group_keys, request_keys = ("|".join(keys.at(version).fields) for keys in (GroupQuery, WideQuery))
    suffix = SUFFIX if version >= (1, 33) else r"[1-9][0-9]*"
    return rf"^(({group_keys})({suffix})?|{request_keys})$"


def _check_keys(pairs: Pairs, version: Version) -> None:
    if version >= (1, 25):
        check(Map(_keys(version), String()), dict(pairs), ERROR_PREFIX)
    else:
        UnsuffixedQuery.at(version).check(dict(pairs), ERROR_PREFIX)
    wide = [(key, value) for key, value in pairs if key in WideQuery.at(version).fields]
    for query in (dict(wide), *({key: value} for key, value in wide)):
        WideQuery.at(version).check(query, ERROR_PREFIX)


def _parse_groups(pairs: Pairs, version: Version) -> tuple[RequestGroup, ...]:
    """Return all request groups in the order of their first appearance; the first key at fault is told."""
    groups: dict[str, RequestGroup] = {}
    for key in dict.fromkeys(key for key, _ in pairs):
        found = _GROUP_KEY.fullmatch(key)
        if found:
            kind, suffix = found.groups()
            group = groups.get(suffix, RequestGroup(suffix))
            groups[suffix] = replace(group, **_parse_values(kind, key, _values(pairs, key), version))
    return tuple(groups.values())


def _parse_values(kind: str, key: str, values: list[str], version: Version) -> dict[str, Any]:
    """Return what the values of one key say of its group."""
    match kind:
        case "resources":
            return {"resources": [parse_resources(value) for value in values][-1]}
        case "required":
            return {"required": parse_required(values, version)}
        case "member_of":
            return {"member_of": parse_member_of(key, values, version)}
        case _:
            return {"in_tree": [_parse_in_tree(value) for value in values][-1]}


def _parse_in_tree(value: str) -> str:
    uuid = value.strip()
    if not UUID.fullmatch(uuid):
        raise Invalid(f"{ERROR_PREFIX}Expected 'in_tree' parameter to be a format of uuid. Got: {uuid}")
    return uuid


def _parse_root_required(values: list[str], version: Version) -> Membership:
    if not values:
        return NO_CONDITION
    if len(values) > 1:
        raise DuplicateQueryKey("Query parameter 'root_required' may be specified only once.")
    traits = parse_root_required(values[0], version)
    if traits.contradictions:
        names = ", ".join(sorted(name for clause in traits.contradictions for name in clause))
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
    listed = frozenset[str]().union(*same_subtree)
    loose = [group.suffix for group in groups if not group.resources and group.suffix not in listed]
    if loose:
        raise BadQueryValue(
            "Resourceless suffixed group request should be specified in `same_subtree` query param:"
            f" bad group(s) - {loose}"
        )
    unreal = sorted(listed - {group.suffix for group in groups})
    if unreal:
        raise BadQueryValue(f"Real suffixes should be specified in `same_subtree`: {unreal} don't exist.")


def _check_all_have_resources(groups: Iterable[RequestGroup]) -> None:
    bare = [group for group in groups if not group.resources]
    if orphans := [f"required{group.suffix}" for group in bare if group.required.any_of]:
        raise Invalid(
            "All traits parameters must be associated with resources. Found the following orphaned"
            f" traits keys: {', '.join(orphans)}"
        )
    if orphans := [f"member_of{group.suffix}" for group in bare if group.member_of]:
        raise Invalid(
            "All member_of parameters must be associated with resources. Found the following orphaned"
            f" member_of keys: {', '.join(orphans)}"
        )
    if bare:
        raise Invalid("All request groups must specify resources.")
    if not any(True for _ in groups):
        raise Invalid("At least one request group (`resources` or `resources{N}`) is required.")


def _check_contradictions(groups: Iterable[RequestGroup]) -> None:
    faults = []
    for group in groups:
        names = sorted({name for clause in group.required.contradictions for name in clause})
        if names:
            faults.append(f"required{group.suffix}: ({', '.join(names)})")
    if faults:
        raise Invalid(
            "Conflicting required and forbidden traits found in the following traits keys: "
            + ", ".join(faults)
        )
