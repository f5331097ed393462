"""The values of the query keys of extended candidate requests (`docs/spec/extensions.md 2`)."""

from collections.abc import Iterable, Sequence

from placement_svc.domain.errors import BadQueryValue, DuplicateQueryKey
from placement_svc.domain.groups import Membership, OrderBy, OrderMethod, RequestGroup, SameSubtree
from placement_svc.domain.wording import QUERY_ERROR, list_names, list_sorted_names
from placement_svc.schemas.scalars import ANY_UUID
from placement_svc.schemas.violations import quote

MAX_PREFERRED = 4
"""The most traits that a request may prefer."""


def parse_isolate(values: Sequence[str], groups: Iterable[RequestGroup]) -> frozenset[str]:
    """Return the suffixes in all values of `isolate`, which are those of `groups`; raises `BadQueryValue`."""
    suffixes = frozenset(piece.strip() for value in values for piece in value.split(","))
    if "" in suffixes:
        raise BadQueryValue("Empty string (unsuffixed group) can not be specified in `isolate`")
    unknown = sorted(suffixes - {group.suffix for group in groups})
    if unknown:
        names = list_names([repr(suffix) for suffix in unknown])
        raise BadQueryValue(f"Real suffixes should be specified in `isolate`: [{names}] don't exist.")
    return suffixes


def parse_extended_same_subtree(value: str) -> SameSubtree:
    """Return the suffixes without and with a `!` in one `same_subtree`; raises `BadQueryValue`."""
    pieces = frozenset(piece.strip() for piece in value.split(","))
    suffixes = frozenset(piece for piece in pieces if not piece.startswith("!"))
    excluded = frozenset(piece[1:] for piece in pieces if piece.startswith("!"))
    if "" in suffixes | excluded:
        raise BadQueryValue("Empty string (unsuffixed group) can not be specified in `same_subtree`")
    if not suffixes:
        raise BadQueryValue(
            "At least one suffix without a `!` should be specified in each `same_subtree`. Got: " + value
        )
    if contradictions := suffixes & excluded:
        raise BadQueryValue(
            "The same suffix can not be specified with and without a `!` in one `same_subtree`: "
            + list_sorted_names(contradictions)
        )
    return SameSubtree(suffixes, excluded)


def parse_can_split(values: Sequence[str], groups: Iterable[RequestGroup]) -> frozenset[str]:
    """Return the resource classes in the values of `can_split`; raise `BadQueryValue`.

    They are those that the unsuffixed group requests, or some of them.
    """
    names = frozenset(piece.strip() for value in values for piece in value.split(","))
    if "" in names:
        raise BadQueryValue("Empty string (no resource class) can not be specified in `can_split`")
    requested = frozenset[str]().union(*(group.resources for group in groups if not group.suffix))
    if unknown := names - requested:
        raise BadQueryValue(
            "The resource classes of 'can_split' must be in the 'resources' parameter without suffix."
            f" Got: {list_sorted_names(unknown, quote)}"
        )
    return names


def parse_preferred(values: Sequence[str], groups: Sequence[RequestGroup]) -> frozenset[str]:
    """Return the traits in the values of `preferred`; raise `BadQueryValue`."""
    pieces = [piece.strip() for value in values for piece in value.split(",")]
    if not pieces:
        return frozenset()
    for piece in pieces:
        if not piece or piece.startswith(("!", "in:")):
            raise BadQueryValue(
                "Expected 'preferred' to be names of traits, separated by commas and without prefix."
                f" Got: {quote(piece)}"
            )
    traits = frozenset(pieces)
    if len(traits) > MAX_PREFERRED:
        raise BadQueryValue(f"'preferred' allows at most {MAX_PREFERRED} traits. Got: {len(traits)}.")
    if not any(group.resources for group in groups if not group.suffix):
        raise BadQueryValue("'preferred' needs a 'resources' parameter without suffix.")
    return traits


def parse_order_by(values: Sequence[str], groups: Sequence[RequestGroup]) -> OrderBy | None:
    """Return the value of `order_by`; raise `BadQueryValue` or `DuplicateQueryKey`."""
    if not values:
        return None
    if len(values) > 1:
        raise DuplicateQueryKey("Query parameter 'order_by' may be specified only once.")
    method, colon, name = values[0].partition(":")
    if values[0] == OrderMethod.RANDOM:
        return OrderBy(OrderMethod.RANDOM)
    if not colon or method not in (OrderMethod.SPREAD, OrderMethod.PACK):
        raise BadQueryValue(
            f"Expected 'order_by' to be spread:CLASS, pack:CLASS or random. Got: {quote(values[0])}"
        )
    if not any(name in group.resources for group in groups):
        raise BadQueryValue(
            f"The resource class of 'order_by' must be one that the request asks for. Got: {quote(name)}"
        )
    return OrderBy(OrderMethod(method), name)


MAX_IGNORED_CONSUMERS = 1000
"""The most consumers that a request can ignore."""


def split_negative(values: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the values that do not begin with ``!``, and those that do; blanks before it are removed."""
    split: tuple[list[str], list[str]] = ([], [])
    for value in values:
        stripped = value.lstrip()
        is_negative = stripped.startswith("!")
        split[is_negative].append(stripped if is_negative else value)
    return split


def parse_root_member_of(values: Sequence[str]) -> Membership:
    """Return the condition on aggregates in the values of `root_member_of`; raises `BadQueryValue`."""
    required, forbidden = split_negative(values)
    return Membership(
        any_of=tuple(map(_parse_aggregates, required)),
        forbidden=frozenset(
            uuid for value in forbidden for uuid in _parse_aggregates(value.removeprefix("!"))
        ),
    )


def _parse_aggregates(value: str) -> frozenset[str]:
    pieces = value.removeprefix("in:").split(",") if value.startswith("in:") else [value]
    for piece in pieces:
        if not ANY_UUID.fullmatch(piece):
            raise BadQueryValue(
                f"{QUERY_ERROR}Expected 'root_member_of' to be the uuid of an aggregate, or several of them"
                f" after 'in:', in both cases with a leading '!' if they are forbidden. Got: {quote(piece)}"
            )
    return frozenset(pieces)


def parse_not_in_tree(key: str, values: Sequence[str]) -> frozenset[str]:
    """Return the uuids in values of `key`, an `in_tree`, that begin with ``!``; raises `BadQueryValue`."""
    uuids: set[str] = set()
    for value in values:
        uuid_or_set = value.strip().removeprefix("!")
        has_in = uuid_or_set.startswith("in:")
        pieces = uuid_or_set.removeprefix("in:").split(",") if has_in else [uuid_or_set]
        for piece in map(str.strip, pieces):
            if not ANY_UUID.fullmatch(piece):
                raise BadQueryValue(
                    f"{QUERY_ERROR}Expected '{key}' to exclude the tree of a provider, as in '!UUID', or of"
                    f" several, as in '!in:UUID,UUID'. Got: {quote(piece)}"
                )
            uuids.add(piece)
    return frozenset(uuids)


def parse_ignore_consumer(values: Sequence[str]) -> frozenset[str]:
    """Return the uuids in the values of `ignore_consumer`; raises `BadQueryValue`."""
    uuids = frozenset(value.strip() for value in values)
    for uuid in sorted(uuids):
        if not ANY_UUID.fullmatch(uuid):
            raise BadQueryValue(
                f"{QUERY_ERROR}Expected 'ignore_consumer' to be the uuid of a consumer. Got: {quote(uuid)}"
            )
    if len(uuids) > MAX_IGNORED_CONSUMERS:
        raise BadQueryValue(
            f"{QUERY_ERROR}'ignore_consumer' names {len(uuids)} consumers; at most"
            f" {MAX_IGNORED_CONSUMERS:,} are allowed."
        )
    return uuids
