"""Sums over the inventories of the cloud (`docs/spec/extensions.md 6.4`)."""

from typing import Any

from flask import Blueprint, Response, g, jsonify

from placement_svc.api.context import load_pairs, reader
from placement_svc.api.pages import respond_with_page
from placement_svc.db import capacity
from placement_svc.domain.capacity import BY_CONSUMER, Amounts, CapacityGroup, Grouping
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import integer
from placement_svc.http.policy import enforce
from placement_svc.schemas.capacity import CapacityQuery, parse_groups
from placement_svc.schemas.pages import MAX_LIMIT
from placement_svc.schemas.provider_lists import parse_extended_filter

bp = Blueprint("capacity", __name__)

_QUERY = CapacityQuery()


def _to_json(amounts: Amounts) -> dict[str, Any]:
    return {
        name: {key: integer(value) for key, value in of_class.items()} for name, of_class in amounts.items()
    }


@bp.get("/capacity")
@endpoint("capacity", introduced="1.0", is_extension=True, checks_accept=True, may_be_stale=True)
def show_capacity() -> Response:
    """Show the capacity and the usage of all providers that match the query, or of groups of them."""
    pairs = load_pairs()
    query = _QUERY.check(dict(pairs), QUERY_ERROR)
    grouping, page = parse_groups(query)
    if grouping in BY_CONSUMER:
        enforce("usages", {})
    provider_filter = parse_extended_filter(query, pairs, g.microversion)
    read = reader().read
    if grouping is None:
        amounts = read(capacity.sums, provider_filter)
        return caching.set_cache_headers(jsonify({"resource_classes": _to_json(amounts)}), caching.now())

    def to_json(group: CapacityGroup) -> dict[str, Any]:
        key = {"uuid": group.key, "name": group.name} if grouping is Grouping.ROOT else group.key
        return {str(grouping): key, "resource_classes": _to_json(group.amounts)}

    return respond_with_page(
        "groups",
        page,
        lambda part: read(capacity.find_page, provider_filter, grouping, part),
        to_json,
        # Most kinds of pages read all that match, so few reads cost less than many.
        elements_per_read=MAX_LIMIT,
    )
