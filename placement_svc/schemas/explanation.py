"""The parts of a query string that an explanation names as filters (`docs/spec/extensions.md 3.1`)."""

from collections.abc import Callable, Sequence

from placement_svc.domain.explanation import GroupTexts, QueryTexts
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.schemas.allocation_candidates import Pairs, WholeRequestQuery
from placement_svc.schemas.base import String
from placement_svc.schemas.query import ERROR_PREFIX


class ExplanationQuery(WholeRequestQuery):
    """The keys of an explanation that concern the whole request: those of the search, and `root`."""

    root = String(
        metadata={"description": "The uuid or the name of a provider of the only tree to explain."},
    )


def split_pairs(pairs: Pairs) -> tuple[Pairs, str | None]:
    """Return the pairs of the request to explain, and the value of `root`; the last one counts."""
    keys = ExplanationQuery().fields.keys() - WholeRequestQuery().fields.keys()
    own = dict(pair for pair in pairs if pair[0] in keys)
    query = ExplanationQuery().check(own, ERROR_PREFIX)
    return [pair for pair in pairs if pair[0] not in keys], query.get("root")


def query_texts(pairs: Pairs, request: CandidatesRequest) -> QueryTexts:
    """Return the part of a valid query string that is each filter of the request."""

    def values(key: str) -> list[str]:
        return [value for found, value in pairs if found == key]

    return QueryTexts(
        groups={group.suffix: _group_texts(group, values) for group in request.groups},
        root_required="".join(f"root_required={value}" for value in values("root_required")),
        same_subtree=tuple(f"same_subtree={value}" for value in values("same_subtree")),
    )


def _group_texts(group: RequestGroup, values: Callable[[str], list[str]]) -> GroupTexts:
    suffix = group.suffix
    required: dict[frozenset[str], str] = {}
    forbidden: list[str] = []
    for value in values(f"required{suffix}"):
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
    member_of = [value for value in values(f"member_of{suffix}") if not value.startswith("!")]
    not_member_of = [value for value in values(f"member_of{suffix}") if value.startswith("!")]
    return GroupTexts(
        required=required,
        forbidden_trait=f"required{suffix}={','.join(dict.fromkeys(forbidden))}",
        member_of={
            frozenset(value.removeprefix("in:").split(",")): f"member_of{suffix}={value}"
            for value in member_of
        },
        forbidden_aggregate=f"member_of{suffix}={_join_forbidden(not_member_of)}",
        in_tree=f"in_tree{suffix}={group.in_tree}",
    )


def _join_forbidden(values: Sequence[str]) -> str:
    """Return one value that forbids the aggregates of all values."""
    if len(values) == 1:
        return values[0]
    uuids = (uuid for value in values for uuid in value.removeprefix("!").removeprefix("in:").split(","))
    return f"!in:{','.join(dict.fromkeys(uuids))}"
