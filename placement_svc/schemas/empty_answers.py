"""Schema of the query for empty answers (`docs/spec/extensions.md 3.7`)."""

from placement_svc.schemas.pages import PageKeys
from placement_svc.schemas.scalars import String


class EmptyAnswersQuery(PageKeys):
    """The query parameters of GET /allocation_candidates/empty."""

    request_id = String(
        min_length=1,
        metadata={"description": "The id of the request, or the one that its caller sent."},
    )
