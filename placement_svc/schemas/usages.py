"""Usages: the query of those of a project (`docs/spec/allocations.md 10`)."""

from placement_svc.schemas.base import Document, String


class UsagesQuery(Document):
    """The keys of GET /usages."""

    project_id = String(min_length=1, max_length=255, required=True)
    user_id = String(min_length=1, max_length=255)
    consumer_type = String(
        min_length=1,
        max_length=255,
        pattern="^[A-Z0-9_]+$|^all|^unknown$",
        since="1.38",
        metadata={"description": "A type of consumers; `all`: the sum of all; `unknown`: those of none."},
    )
