"""The query of GET /allocation_candidates/capacity, and its response (`docs/spec/extensions.md 4`)."""

from placement_svc.domain.errors import Invalid
from placement_svc.domain.fits import DEFAULT_MAX, FitsRequest
from placement_svc.domain.pages import PageRequest
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.allocation_candidates import parse_request
from placement_svc.schemas.base import Array, Map, Object, Schema
from placement_svc.schemas.candidates_query import ExtendedRequestQuery
from placement_svc.schemas.pages import PageKeys, parse_page
from placement_svc.schemas.query import Pairs, values_of
from placement_svc.schemas.responses import LinkSchema
from placement_svc.schemas.scalars import DASHED_UUID, DASHED_UUID_TEXT, NAME, Integer, String, Version
from placement_svc.schemas.violations import quote

MAX_DIGITS = 18
"""The most digits of `max`."""


class FitsQuery(PageKeys, ExtendedRequestQuery):
    """The keys that concern the whole request: those of the search, but with `limit` for a page."""

    max = String(
        pattern=rf"^[1-9][0-9]{{0,{MAX_DIGITS - 1}}}$",
        hint=f"It is a whole number of at least 1, with at most {MAX_DIGITS} digits.",
        metadata={"description": f"The number of claims at which counting stops; default {DEFAULT_MAX:,}."},
    )
    without = String(
        metadata={
            "description": "Providers whose trees count as absent. If the key is repeated, all values count.",
            "pattern": rf"^{DASHED_UUID_TEXT}(, *{DASHED_UUID_TEXT})*$",
        }
    )
    group_by = String(
        choices=("aggregate",), metadata={"description": "Adds the claims by the aggregates of the roots."}
    )


_QUERY = FitsQuery()
_OWN_KEYS = frozenset(_QUERY.fields.keys() - ExtendedRequestQuery().fields.keys() | {"limit"})


def parse_fits(pairs: Pairs, version: Version) -> tuple[FitsRequest, PageRequest]:
    """Return the request and the page of its roots; raise `Invalid`.

    If a key is repeated, the last value counts, except for `without` and the keys of the search.
    """
    own = dict(pair for pair in pairs if pair[0] in _OWN_KEYS)
    query = _QUERY.check(own, QUERY_ERROR)
    of_search = [pair for pair in pairs if pair[0] not in _OWN_KEYS]
    request = parse_request(of_search, version, extended=True, other_keys=_OWN_KEYS)
    fits_request = FitsRequest(
        request=request,
        max_claims=int(query.get("max", DEFAULT_MAX)),
        without=tuple(
            dict.fromkeys(
                _parse_uuid(piece) for value in values_of(pairs, "without") for piece in value.split(",")
            )
        ),
        by_aggregate="group_by" in query,
    )
    return fits_request, parse_page({**query, "sort_by": "-fits"})


def _parse_uuid(piece: str) -> str:
    """Return a uuid in the form in which providers have it; raise `Invalid`."""
    uuid = piece.strip()
    if not DASHED_UUID.fullmatch(uuid):
        raise Invalid(
            f"{QUERY_ERROR}Expected 'without' to be uuids of providers, separated by commas."
            f" Got: {quote(uuid)}"
        )
    return uuid.lower()


class RootFitsSchema(Schema):
    """How many claims fit at a root, and the class that allows no more; `other` if `max` ended the count."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True)
    fits = Integer(1, required=True)
    binding = String(required=True)


class AggregateFitsSchema(Schema):
    """How many claims fit at the roots in an aggregate."""

    aggregate = String(required=True)
    fits = Integer(1, required=True)


class FitsSchema(Schema):
    """How often a request can be claimed until it has no candidates.

    `binding` has the claims by the class that allows no more of them, `stranded` what remains free of the
    requested classes.
    """

    fits = Integer(0, required=True)
    bound = String(
        choices=("exact", "lower"),
        required=True,
        metadata={"description": "`exact` if no other choice of candidates gives more claims, or `lower`."},
    )
    binding = Map(f"{NAME}|^other$", Integer(1), required=True)
    stranded = Map(NAME, Integer(1), required=True)
    roots = Array(Object(RootFitsSchema()), required=True)
    groups = Array(Object(AggregateFitsSchema()))
    links = Array(Object(LinkSchema()), required=True)
