"""Schema of the usages query (`docs/spec/allocations.md 10`)."""

from placement_svc.domain.limits import MAX_ID_LENGTH, MAX_NAME_LENGTH
from placement_svc.schemas.base import Schema
from placement_svc.schemas.scalars import NAME, String
from placement_svc.schemas.staleness import STALE_KEYS


class UsagesQuery(Schema):
    """The query parameters of GET /usages."""

    extension_keys = STALE_KEYS

    project_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True)
    user_id = String(min_length=1, max_length=MAX_ID_LENGTH)
    consumer_type = String(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        pattern=f"{NAME}|^all|^unknown$",
        hint="A consumer type consists of the capital letters A to Z, digits and underscores, or is all or"
        " unknown.",
        since="1.38",
        metadata={
            "description": "A consumer type, or `all` for the sum, or `unknown` for consumers without a type."
        },
    )
