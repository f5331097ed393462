"""Schema of the usages query (`docs/spec/allocations.md 10`)."""

from placement_svc.schemas.base import Schema, String


class UsagesQuery(Schema):
    """The query parameters of GET /usages."""

    project_id = String(min_length=1, max_length=255, required=True)
    user_id = String(min_length=1, max_length=255)
    consumer_type = String(
        min_length=1,
        max_length=255,
        pattern="^[A-Z0-9_]+$|^all|^unknown$",
        since="1.38",
        metadata={
            "description": "A consumer type, or `all` for the sum, or `unknown` for consumers without a type."
        },
    )
