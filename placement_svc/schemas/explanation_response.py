"""The response that explains a request for allocation candidates (`docs/spec/extensions.md 3`)."""

from placement_svc.schemas.base import Array, Map, Object, Schema
from placement_svc.schemas.scalars import DASHED_UUID, NAME, Boolean, Integer, String

HAS = {
    "description": (
        "With `root`, for a filter that the root fails: the amount, the traits or the aggregates that the"
        " provider has, or the root of its tree."
    ),
    "type": ["integer", "array", "string", "null"],
    "items": {"type": "string"},
}
"""The documentation of a value of one of several types."""

SUFFIX_KEY = "^[a-zA-Z0-9_ -]+$"


class NamedProviderSchema(Schema):
    """A provider by uuid and name."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True)


class FilterSchema(Schema):
    """A filter of the request, and the numbers of roots (provider trees) that pass it.

    `alone` counts the roots that pass it by itself, `left` those that pass it and the filters before it, and
    `sole_blocker` those that only this filter excludes.
    """

    code = String(required=True)
    query = String(required=True, allow_none=True)
    resource_class = String(pattern=NAME)
    alone = Integer(0, required=True)
    left = Integer(0, required=True)
    sole_blocker = Integer(0, required=True)
    wanted = Integer(1)
    best = Integer(0, allow_none=True)
    sum_free = Integer(0, allow_none=True)
    has = String(allow_none=True, metadata=HAS)
    provider = Object(NamedProviderSchema(), allow_none=True)


class GroupFiltersSchema(Schema):
    """The filters of one request group, in the order in which `left` applies them."""

    suffix = String(required=True)
    filters = Array(Object(FilterSchema()), required=True)


class RootCountsSchema(Schema):
    """The numbers of roots: `by_first_failure` and `with_candidates` add up to `total`.

    With `more`, the cloud has more roots than the counts cover.
    """

    total = Integer(0, required=True)
    more = Boolean(required=True)
    with_candidates = Integer(0, required=True)
    returned = Integer(0)
    by_first_failure = Map(SUFFIX_KEY, Integer(1), required=True)


class FailingFilterSchema(Schema):
    """A filter that a root fails, with the provider that comes closest to passing it (null: none does).

    `suffix` is null for filters on the root and on combinations.
    """

    suffix = String(required=True, allow_none=True)
    code = String(required=True)
    query = String(allow_none=True)
    resource_class = String(pattern=NAME)
    wanted = Integer(1)
    best = Integer(0, allow_none=True)
    provider = Object(NamedProviderSchema(), required=True, allow_none=True)
    has = String(allow_none=True, metadata=HAS)


class RelaxationSchema(Schema):
    """A change of the request, and the number of roots that then have candidates.

    `without` names the parts of the query to remove, `instead` the amount to request instead.
    """

    without = String(
        metadata={"type": ["string", "array"], "items": {"type": "string"}, "description": "One part or two."}
    )
    instead = String()
    roots = Integer(1, required=True)


class NearRootSchema(Schema):
    """A root without candidates, and the filters that it fails."""

    root = Object(NamedProviderSchema(), required=True)
    fails = Array(Object(FailingFilterSchema()), required=True)


class ExplanationSchema(Schema):
    """Which filters of a request for allocation candidates exclude how many hosts, and why."""

    has_candidates = Boolean(required=True)
    kind = String(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Why there are no candidates: `impossible`, `fragmented`, `full`, `combination` or"
                " `filtered`; null if there are candidates."
            )
        },
    )
    code = String(
        required=True,
        allow_none=True,
        metadata={"description": "The code of the filter that excludes most roots by itself."},
    )
    summary = String(required=True)
    groups = Array(Object(GroupFiltersSchema()), required=True)
    tree = Array(Object(FilterSchema()), required=True)
    roots = Object(RootCountsSchema(), required=True)
    relaxations = Array(
        Object(RelaxationSchema()),
        metadata={
            "description": "Changes with which more roots have candidates; absent with `relaxations=0`."
        },
    )
    complete = Boolean(
        required=True,
        metadata={
            "description": "Whether `relaxations` and `nearest` took less than half the time of a request."
        },
    )
    nearest = Array(Object(NearRootSchema()), required=True)
    root = Object(NamedProviderSchema())
    truncated_by = String(
        allow_none=True,
        metadata={
            "description": (
                "What cuts the response to this request: `limit`, or `max_candidates` for the setting;"
                " null if nothing does."
            )
        },
    )
