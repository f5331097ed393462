"""The response that explains a request for allocation candidates (`docs/spec/extensions.md 3`)."""

from placement_svc.schemas.base import DASHED_UUID, NAME, Array, Boolean, Integer, Map, Object, Schema, String

SUFFIX_KEY = "^[a-zA-Z0-9_ -]+$"


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


class NamedRootSchema(Schema):
    """The only root that the explanation covers."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True)


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
    root = Object(NamedRootSchema())
    truncated_by = String(
        allow_none=True,
        metadata={
            "description": (
                "What cuts the response to this request: `limit`, or `max_candidates` for the setting;"
                " null if nothing does."
            )
        },
    )
