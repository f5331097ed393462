"""The overview: what the cloud has in all, and the last searches that found nothing."""

from collections.abc import Mapping
from typing import Any, cast

from flask import Blueprint, current_app, render_template

from placement_svc.api.context import reader
from placement_svc.console.context import allows, load_form
from placement_svc.db import capacity, empty_answers, host_pages
from placement_svc.db.connections.engine import Transaction
from placement_svc.domain.providers import ProviderFilter
from placement_svc.schemas.console import OverviewQuery

bp = Blueprint("overview", __name__)

EMPTY_ANSWERS = 10
"""How many of the last searches without candidates the page shows."""

EMPTY_ANSWERS_OF_REQUEST = 30
"""How many it shows of one request id: a client sends the same one with all its searches for a server."""


@bp.get("/console")
def show() -> str:
    """Show the sums of all inventories, the numbers of objects, and the last empty answers."""
    request_id = load_form(OverviewQuery).get("request_id", "").strip()
    shows = {
        "capacity": allows("capacity"),
        "providers": allows("resource_providers:list"),
        "consumers": allows("consumers:list", {}),
        "projects": allows("projects:list", {}),
        "empty": allows("allocation_candidates:empty"),
        "fits": allows("allocation_candidates:capacity"),
        "explanations": allows("allocation_candidates:explain"),
    }

    def read(connection: Transaction) -> dict[str, Any]:
        return {
            "counts": host_pages.count_objects(connection),
            "amounts": capacity.sums(connection, ProviderFilter()) if shows["capacity"] else {},
            "empty": empty_answers.find(
                connection,
                request_id=request_id or None,
                limit=EMPTY_ANSWERS_OF_REQUEST if request_id else EMPTY_ANSWERS,
            )
            if shows["empty"]
            else [],
        }

    return render_template(
        "overview.html", shows=shows, watched=_watched(), request_id=request_id, **reader().read(read)
    )


def _watched() -> Mapping[str, int | None]:
    """Return how often each watched request fits; it does not wait for results that are not known yet."""
    watched = current_app.extensions["watched_requests"]
    return {} if watched is None else cast(Mapping[str, int | None], watched.results(0))
