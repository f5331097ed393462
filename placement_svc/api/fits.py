"""How often a request can be claimed, an extension (`docs/spec/extensions.md 4`)."""

from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, g

from placement_svc.api.allocation_candidates import (
    check_ignored_consumers,
    one_at_a_time,
    search_options,
)
from placement_svc.api.context import load_pairs, reader, settings
from placement_svc.api.pages import link_to_next
from placement_svc.db.fits import count_fits
from placement_svc.domain.fits import Fits, find_page
from placement_svc.domain.pages import PageRequest
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import respond_with_big_integers
from placement_svc.schemas.allocation_candidates import check_group_count
from placement_svc.schemas.fits import parse_fits
from placement_svc.schemas.pages import write_marker
from placement_svc.schemas.query import Pairs

bp = Blueprint("fits", __name__)

DEFAULT_LIMIT = 100
"""The number of roots in a page if the request has no `limit`."""


@bp.get("/allocation_candidates/capacity")
@endpoint(
    "allocation_candidates:capacity",
    introduced="1.0",
    is_extension=True,
    checks_accept=True,
    may_be_stale=True,
)
def show_fits() -> Response:
    """Show how often a request for allocation candidates can be claimed, and what limits it."""
    fits, page = count_pairs(load_pairs())
    return caching.set_cache_headers(respond_with_big_integers(_to_json(fits, page)), caching.now())


def count_pairs(pairs: Pairs) -> tuple[Fits, PageRequest]:
    """Return the fits of a query with these keys and values, and the page it asks for; raise `Invalid`."""
    check_group_count(pairs, settings().max_groups)
    fits_request, page = parse_fits(pairs, g.microversion)
    check_ignored_consumers(fits_request.request)
    with one_at_a_time(fits_request.request):
        return reader().read(count_fits, fits_request, search_options(fits_request.request)), page


def _to_json(fits: Fits, page: PageRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "fits": fits.count,
        "bound": "exact" if fits.is_exact else "lower",
        "binding": fits.binding,
        "stranded": fits.stranded,
    }
    found = find_page(fits, replace(page, limit=page.limit or DEFAULT_LIMIT))
    body["roots"] = [vars(root) for root in found.elements]
    if fits.aggregates is not None:
        body["groups"] = [{"aggregate": uuid, "fits": count} for uuid, count in fits.aggregates.items()]
    body["links"] = []
    if found.has_more and found.last:
        body["links"] = [link_to_next()(write_marker(found.last, page.sort))]
    return body
