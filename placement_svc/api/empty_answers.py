"""Searches for allocation candidates that found none (`docs/spec/extensions.md 3.7`)."""

from dataclasses import asdict
from typing import Any

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import load_query, reader
from placement_svc.api.pages import link_to_next
from placement_svc.db import empty_answers
from placement_svc.domain.empty_answers import EmptyAnswer
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import timestamp
from placement_svc.schemas.empty_answers import EmptyAnswersQuery
from placement_svc.schemas.pages import parse_page
from placement_svc.schemas.scalars import DASHED_UUID_KEY

bp = Blueprint("empty_answers", __name__)

DEFAULT_LIMIT = 100


def _to_json(answer: EmptyAnswer) -> dict[str, Any]:
    members = asdict(answer)
    return {"id": members.pop("uuid"), **members, "created_at": timestamp(answer.created_at)}


@bp.get("/allocation_candidates/empty")
@endpoint(
    "allocation_candidates:empty", introduced="1.0", is_extension=True, checks_accept=True, may_be_stale=True
)
def list_empty_answers() -> Response:
    """List the latest requests for allocation candidates that had none, newest first."""
    query = load_query(EmptyAnswersQuery)
    page = parse_page(query, DASHED_UUID_KEY)
    limit = page.limit or DEFAULT_LIMIT
    found = reader().read(
        empty_answers.find,
        request_id=query.get("request_id"),
        before=page.after.key if page.after else None,
        limit=limit + 1,
    )
    links = [link_to_next()(found[limit - 1].uuid)] if len(found) > limit else []
    body = {"empty": [_to_json(answer) for answer in found[:limit]], "links": links}
    return caching.set_cache_headers(jsonify(body), caching.now())
