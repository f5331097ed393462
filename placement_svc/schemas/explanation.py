"""The parts of a query string that an explanation names as filters (`docs/spec/extensions.md 3.1`)."""

from collections.abc import Sequence

from placement_svc.domain.explanation.filters import GroupTexts, QueryTexts
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.candidate_extensions import split_negative
from placement_svc.schemas.candidates_query import ExtendedRequestQuery
from placement_svc.schemas.query import Pairs, values_of
from placement_svc.schemas.scalars import String


class ExplanationQuery(ExtendedRequestQuery):
    """The keys of an explanation that concern the whole request: those of the search, and its own."""

    root = String(
        metadata={"description": "The uuid or the name of a provider of the only tree to explain."},
    )
    relaxations = String(
        choices=("0", "1"),
        metadata={
            "description": "Whether the response has `relaxations`, which take longest: `1` (default) or `0`."
        },
    )


_QUERY = ExplanationQuery()
OWN_KEYS = frozenset(_QUERY.fields.keys() - ExtendedRequestQuery().fields.keys())
"""The keys that a search does not have."""


def split_pairs(pairs: Pairs) -> tuple[Pairs, dict[str, str]]:
    """Return the pairs of the request to explain, and the values of the other keys; the last one counts."""
    own = dict(pair for pair in pairs if pair[0] in OWN_KEYS)
    query: dict[str, str] = _QUERY.check(own, QUERY_ERROR)
    return [pair for pair in pairs if pair[0] not in OWN_KEYS], query


def query_texts(pairs: Pairs, request: CandidatesRequest) -> QueryTexts:
    """Return the part of a valid query string that is each filter of the request."""
    return QueryTexts(
        groups={group.suffix: _group_texts(group, pairs) for group in request.groups},
        root_required="&".join(f"root_required={value}" for value in values_of(pairs, "root_required")),
        root_member_of="&".join(f"root_member_of={value}" for value in values_of(pairs, "root_member_of")),
        same_subtree=tuple(f"same_subtree={value}" for value in values_of(pairs, "same_subtree")),
        isolate="isolate="
        + ",".join(
            dict.fromkeys(
                piece.strip() for value in values_of(pairs, "isolate") for piece in value.split(",")
            )
        ),
    )


def _group_texts(group: RequestGroup, pairs: Pairs) -> GroupTexts:
    suffix = group.suffix
    required: dict[frozenset[str], str] = {}
    forbidden: list[str] = []
    for value in values_of(pairs, f"required{suffix}"):
        pieces = [piece.strip() for piece in value.removeprefix("in:").split(",")]
        if value.startswith("in:"):
            required.setdefault(frozenset(pieces), f"required{suffix}=in:{','.join(pieces)}")
            continue
        for piece in pieces:
            name = piece.lstrip("!")
            if name != piece:
                forbidden.append(f"!{name}")
            else:
                required.setdefault(frozenset([name]), f"required{suffix}={name}")
    member_of = [value for value in values_of(pairs, f"member_of{suffix}") if not value.startswith("!")]
    not_member_of = [value for value in values_of(pairs, f"member_of{suffix}") if value.startswith("!")]
    in_tree = [group.in_tree] if group.in_tree else []
    if group.not_in_tree:
        _, negative = split_negative(values_of(pairs, f"in_tree{suffix}"))
        in_tree.append(_join_forbidden([value.strip() for value in negative]))
    return GroupTexts(
        required=required,
        forbidden_trait=f"required{suffix}={','.join(dict.fromkeys(forbidden))}",
        member_of={
            frozenset(value.removeprefix("in:").split(",")): f"member_of{suffix}={value}"
            for value in member_of
        },
        forbidden_aggregate=f"member_of{suffix}={_join_forbidden(not_member_of)}",
        in_tree="&".join(f"in_tree{suffix}={value}" for value in in_tree),
    )


def _join_forbidden(values: Sequence[str]) -> str:
    """Return one value that forbids the aggregates or trees of all values."""
    if len(set(values)) == 1:
        return values[0]
    uuids = (uuid for value in values for uuid in value.removeprefix("!").removeprefix("in:").split(","))
    return f"!in:{','.join(dict.fromkeys(map(str.strip, uuids)))}"
