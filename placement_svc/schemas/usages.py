"""Usages: the query of those of a project (`docs/spec/allocations.md 10`)."""

from placement_svc.domain.limits import MAX_ID_LENGTH, MAX_NAME_LENGTH
from placement_svc.schemas.base import Document, String


class UsagesQuery(Document):
    """The keys of GET /usages."""

    project_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True)
    user_id = String(min_length=1, max_length=MAX_ID_LENGTH)
    consumer_type = String(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        pattern="^[A-Z0-9_]+$|^all|^unknown$",
        since="1.38",
        metadata={"description": "A type of consumers; `all`: the sum of all; `unknown`: those of none."},
    )
