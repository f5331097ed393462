"""The values of the query string of GET /allocation_candidates (`docs/spec/candidates.md 2`)."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import lru_cache
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
    SameSubtree,
)
from placement_svc.domain.wording import QUERY_ERROR, counted, list_names, list_sorted_names
from placement_svc.schemas.base import extension_hint, version_hint
from placement_svc.schemas.candidate_extensions import (
    parse_can_split,
    parse_extended_same_subtree,
    parse_ignore_consumer,
    parse_isolate,
    parse_not_in_tree,
    parse_order_by,
    parse_preferred,
    parse_root_member_of,
    split_negative,
)
from placement_svc.schemas.candidates_query import (
    EXTENSION_KEYS,
    GROUP_KEY,
    NUMBERED_SUFFIX,
    ExtendedRequestQuery,
    GroupQuery,
    UnsuffixedQuery,
    WholeRequestQuery,
    introduced,
)
from placement_svc.schemas.groups import (
    parse_member_of,
    parse_required,
    parse_resources,
    parse_root_required,
)
from placement_svc.schemas.query import Pairs, values_of
from placement_svc.schemas.scalars import ANY_UUID, SUFFIX, Version, matches
from placement_svc.schemas.violations import Violation, quote

REQUEST_CACHE_SIZE = 256
"""Parsed requests that are cached."""

MAX_CACHED_LENGTH = 2000
"""Characters of the longest query whose parsed request is cached; one takes at most some 10 kB."""

MAX_LIMIT_DIGITS = 18
"""A `limit` with more digits is ignored: no response has so many candidates."""


def check_group_count(pairs: Pairs, max_groups: int) -> None:
    """Raise `Invalid` if `pairs` contain more than `max_groups` request groups."""
    suffixes = {match[2] for key, _ in pairs if (match := GROUP_KEY.fullmatch(key))}
    if len(suffixes) > max_groups:
        raise Invalid(f"{QUERY_ERROR}there are more than {counted(max_groups, 'request group')}")


def parse_request(
    pairs: Pairs, version: Version, *, extended: bool, other_keys: frozenset[str] = frozenset()
) -> CandidatesRequest:
    """Return the request that the pairs of a query string describe; raises `Invalid` for the first error.

    With `extended`, the extensions of `docs/spec/extensions.md 2` are allowed; `version` is then 1.39. The
    error for an unknown key also names `other_keys`, which the query string may have besides.
    Schedulers repeat the requests for the same flavors, so short ones are parsed once.
    """
    is_short = sum(len(key) + len(value) for key, value in pairs) <= MAX_CACHED_LENGTH
    return (_cached_request if is_short else _parse_request)(tuple(pairs), version, extended, other_keys)


def _parse_request(
    pairs: Pairs, version: Version, extended: bool, other_keys: frozenset[str]
) -> CandidatesRequest:
    _check_keys(pairs, version, ExtendedRequestQuery if extended else WholeRequestQuery, other_keys)
    root_required = _parse_root_required(values_of(pairs, "root_required"), version, extended=extended)
    parse_same_subtree = parse_extended_same_subtree if extended else _parse_same_subtree
    same_subtree = tuple(parse_same_subtree(value) for value in values_of(pairs, "same_subtree"))
    groups = _parse_groups(pairs, version, extended=extended)
    if version >= (1, 36):
        _check_resourceless(groups, same_subtree)
    else:
        _check_all_have_resources(groups)
    _check_contradictions(groups)
    isolate = parse_isolate(values_of(pairs, "isolate"), groups)
    limits, group_policies = values_of(pairs, "limit"), values_of(pairs, "group_policy")
    if not (extended or group_policies) and sum(1 for group in groups if group.suffix) > 1:
        raise Invalid(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )
    if isolate and group_policies:
        raise BadQueryValue("`isolate` and `group_policy` can not be specified together: remove one of both.")
    return CandidatesRequest(
        groups=groups,
        root_required=root_required,
        root_member_of=parse_root_member_of(values_of(pairs, "root_member_of")),
        same_subtree=same_subtree,
        group_policy=GroupPolicy(group_policies[0]) if group_policies else GroupPolicy.NONE,
        isolate=isolate,
        limit=int(limits[0]) if limits and len(limits[0]) <= MAX_LIMIT_DIGITS else None,
        ignore_consumer=parse_ignore_consumer(values_of(pairs, "ignore_consumer")),
        can_split=parse_can_split(values_of(pairs, "can_split"), groups),
        preferred=parse_preferred(values_of(pairs, "preferred"), groups),
        order_by=parse_order_by(values_of(pairs, "order_by"), groups),
    )


_cached_request = lru_cache(REQUEST_CACHE_SIZE)(_parse_request)


def _group_key_patterns(version: Version) -> list[str]:
    """Return the pattern of each kind of group key at a microversion with suffixes, in alphabetical order."""
    suffix = SUFFIX if version >= (1, 33) else NUMBERED_SUFFIX
    return [f"^{key}({suffix})?$" for key in sorted(GroupQuery.at(version).fields)]


def _keys_hint(version: Version, request_keys: Iterable[str]) -> str:
    group_keys = ", ".join(sorted(GroupQuery.at(version).fields))
    return (
        f"The keys of a group are {group_keys}, each followed by the suffix of the group;"
        f" the keys of the whole request are {', '.join(sorted(request_keys))}."
    )


def _check_suffixed_keys(
    pairs: Pairs, version: Version, request_query: type[WholeRequestQuery], other_keys: frozenset[str]
) -> None:
    """Raise `Invalid` for keys that a microversion with suffixes does not have.

    The error names the patterns of group keys only, although the keys for the whole request are valid too.
    """
    patterns = _group_key_patterns(version)
    group_keys, request_keys = "|".join(patterns), request_query.at(version).fields
    unknown = sorted({key for key, _ in pairs if key not in request_keys and not matches(group_keys, key)})
    if unknown:
        keys = list_sorted_names(unknown, quote)
        verb = "does" if len(unknown) == 1 else "do"
        reason = f"{keys} {verb} not match any of the regexes: {', '.join(map(repr, patterns))}"
        hint = version_hint(unknown, introduced) or extension_hint(unknown, EXTENSION_KEYS)
        hint = hint or _keys_hint(version, {*request_keys, *other_keys})
        violation = Violation("additionalProperties", False, reason, dict(pairs), hint=hint)
        raise Invalid(f"{QUERY_ERROR}{violation}")


def _check_keys(
    pairs: Pairs, version: Version, request_query: type[WholeRequestQuery], other_keys: frozenset[str]
) -> None:
    if version >= (1, 25):
        _check_suffixed_keys(pairs, version, request_query, other_keys)
    else:
        UnsuffixedQuery.at(version).check(dict(pairs), QUERY_ERROR)
    whole_request = request_query.at(version)
    known = [(key, value) for key, value in pairs if key in whole_request.fields]
    for query in (dict(known), *({key: value} for key, value in known)):
        whole_request.check(query, QUERY_ERROR)


def _parse_groups(pairs: Pairs, version: Version, *, extended: bool) -> tuple[RequestGroup, ...]:
    """Return all request groups in the order of their first appearance; raises `Invalid`.

    The error concerns the first key with an invalid value.
    """
    groups: dict[str, RequestGroup] = {}
    for key in dict.fromkeys(key for key, _ in pairs):
        match = GROUP_KEY.fullmatch(key)
        if match:
            field, suffix = match.groups()
            values = values_of(pairs, key)
            group = groups.get(suffix, RequestGroup(suffix))
            try:
                if extended and field == "in_tree":
                    values, negative = split_negative(values)
                    group = replace(group, not_in_tree=parse_not_in_tree(key, negative))
                if values:
                    group = replace(group, **{field: GROUP_PARSERS[field](key, values, version)})
            except Invalid as error:
                error.key = key
                raise
            groups[suffix] = group
    return tuple(groups.values())


def _parse_in_tree(value: str) -> str:
    uuid = value.strip()
    if not ANY_UUID.fullmatch(uuid):
        raise Invalid(f"{QUERY_ERROR}Expected 'in_tree' parameter to be a format of uuid. Got: {uuid}")
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


def _parse_root_required(values: list[str], version: Version, *, extended: bool) -> Membership:
    if not values:
        return NO_CONDITION
    if extended:
        traits = parse_required(values, version)
    elif len(values) > 1:
        raise DuplicateQueryKey("Query parameter 'root_required' may be specified only once.")
    else:
        traits = parse_root_required(values[0], version)
    if traits.contradictions:
        names = list_sorted_names([name for any_of in traits.contradictions for name in any_of])
        raise BadQueryValue(f"Conflicting required and forbidden traits found in root_required: {names}")
    return traits


def _parse_same_subtree(value: str) -> SameSubtree:
    suffixes = frozenset(piece.strip() for piece in value.split(","))
    if "" in suffixes:
        raise BadQueryValue("Empty string (unsuffixed group) can not be specified in `same_subtree`")
    return SameSubtree(suffixes)


def _check_resourceless(groups: Iterable[RequestGroup], same_subtree: Collection[SameSubtree]) -> None:
    if not any(group.resources for group in groups):
        raise MissingQueryValue(
            "There must be at least one resources or resources[$S] parameter."
            " Send for example resources=VCPU:1,MEMORY_MB:512."
        )
    in_same_subtree = frozenset[str]().union(*(each.suffixes for each in same_subtree))
    unlisted = [
        group.suffix for group in groups if not group.resources and group.suffix not in in_same_subtree
    ]
    if unlisted:
        raise BadQueryValue(
            "Resourceless suffixed group request should be specified in `same_subtree` query param:"
            f" bad group(s) - {_list_suffixes(unlisted)}"
        )
    excluded = frozenset[str]().union(*(each.excluded for each in same_subtree))
    unknown = sorted((in_same_subtree | excluded) - {group.suffix for group in groups})
    if unknown:
        raise BadQueryValue(
            f"Real suffixes should be specified in `same_subtree`: {_list_suffixes(unknown)} don't exist."
        )


def _list_suffixes(suffixes: Iterable[str]) -> str:
    return f"[{list_names([repr(suffix) for suffix in suffixes])}]"


def _check_all_have_resources(groups: Collection[RequestGroup]) -> None:
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
    if not groups:
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
