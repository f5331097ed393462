"""Explanations of requests for allocation candidates, an extension (`docs/spec/extensions.md 3`)."""

from typing import Any

from flask import Blueprint, Response, g

from placement_svc.api.allocation_candidates import (
    check_ignored_consumers,
    one_at_a_time,
    search_options,
)
from placement_svc.api.context import load_pairs, reader, settings
from placement_svc.db.explanation.explain import ExplainedRequest, ExplanationOptions, explain
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import respond_with_big_integers
from placement_svc.schemas.allocation_candidates import check_group_count, parse_request
from placement_svc.schemas.explanation import OWN_KEYS, query_texts, split_pairs
from placement_svc.schemas.query import Pairs

bp = Blueprint("explanations", __name__)


@bp.get("/allocation_candidates/explanation")
@endpoint(
    "allocation_candidates:explain",
    introduced="1.0",
    is_extension=True,
    checks_accept=True,
    may_be_stale=True,
)
def explain_candidates() -> Response:
    """Explain which filters of a candidates request exclude which hosts."""
    response = respond_with_big_integers(explain_pairs(load_pairs()))
    return caching.set_cache_headers(response, caching.now())


def explain_pairs(all_pairs: Pairs) -> dict[str, Any]:
    """Return the body of the response to a query with these keys and values; raise `Invalid`."""
    pairs, own = split_pairs(all_pairs)
    check_group_count(pairs, settings().max_groups)
    candidates_request = parse_request(pairs, g.microversion, extended=True, other_keys=OWN_KEYS)
    check_ignored_consumers(candidates_request)
    explained = ExplainedRequest(
        request=candidates_request,
        texts=query_texts(pairs, candidates_request),
        root=own.get("root"),
        relaxes=own.get("relaxations") != "0",
    )
    options = ExplanationOptions(
        search=search_options(candidates_request), max_roots=settings().explanation_roots
    )
    with one_at_a_time(candidates_request):
        return reader().read(explain, explained, options)
