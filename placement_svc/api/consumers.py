"""Consumers and projects (`docs/spec/extensions.md 6.3`)."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from flask import Blueprint, Response, jsonify
from werkzeug.exceptions import Forbidden

from placement_svc.api.context import database, load_query, reader
from placement_svc.api.pages import ELEMENTS_PER_READ, respond_with_page
from placement_svc.db import consumer_pages, project_pages
from placement_svc.domain.consumers import Consumer, ConsumerDetails, ConsumerFilter
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import timestamp
from placement_svc.http.policy import enforce
from placement_svc.schemas.consumers import ConsumersQuery, ProjectsQuery
from placement_svc.schemas.pages import MAX_LIMIT, parse_page
from placement_svc.schemas.scalars import UUID_KEY

bp = Blueprint("consumers", __name__)

SHOWS_PROVIDERS = ("include", "resource_provider", "in_tree")
"""The query keys with which a list of consumers shows which providers they have allocations from."""


def _to_json(consumer: Consumer) -> dict[str, Any]:
    times = {"created_at": _text(consumer.created_at), "updated_at": _text(consumer.updated_at)}
    return asdict(consumer) | times


def _text(time: datetime | None) -> str | None:
    return None if time is None else timestamp(time)


def _details_to_json(details: ConsumerDetails) -> dict[str, Any]:
    body = _to_json(details.consumer)
    return body if details.allocations is None else body | {"allocations": details.allocations}


@bp.get("/consumers")
@endpoint(
    "consumers:list",
    introduced="1.0",
    is_extension=True,
    checks_accept=True,
    project_from_query=True,
    may_be_stale=True,
)
def list_consumers() -> Response:
    """List the consumers that match all filters of the query."""
    query = load_query(ConsumersQuery)
    if any(key in query for key in SHOWS_PROVIDERS):
        enforce("allocations:list")
    page = parse_page(query, UUID_KEY)
    consumer_filter = ConsumerFilter(
        **{key: value for key, value in query.items() if key in ConsumerFilter.__dataclass_fields__}
    )
    read = reader().read
    return respond_with_page(
        "consumers",
        page,
        lambda part: read(
            consumer_pages.find_page, consumer_filter, part, with_allocations="include" in query
        ),
        _details_to_json,
        # Each page in the order of creation reads all consumers that match.
        elements_per_read=ELEMENTS_PER_READ if page.sort is None else MAX_LIMIT,
    )


@bp.get("/consumers/<consumer_uuid>")
@endpoint("consumers:show", introduced="1.0", is_extension=True, checks_accept=True)
def show_consumer(consumer_uuid: str) -> Response:
    """Show a consumer."""
    consumer = database().read(consumer_pages.get, consumer_uuid)
    try:
        enforce("consumers:show", {"project_id": consumer.project_id})
    except Forbidden:
        # The caller may see consumers of its own project only, and must not learn that this one exists.
        raise consumer_pages.not_found(consumer_uuid) from None
    return caching.set_cache_headers(jsonify(_to_json(consumer)), consumer.updated_at or consumer.created_at)


@bp.get("/projects")
@endpoint(
    "projects:list",
    introduced="1.0",
    is_extension=True,
    checks_accept=True,
    project_from_query=True,
    may_be_stale=True,
)
def list_projects() -> Response:
    """List the projects that have consumers, with their usages."""
    query = load_query(ProjectsQuery)
    page = parse_page(query)
    read = reader().read
    return respond_with_page(
        "projects",
        page,
        lambda part: read(project_pages.find_page, query.get("project_id"), part),
        asdict,
        # Each page in the order of an amount sums up all allocations of the class.
        elements_per_read=MAX_LIMIT,
    )
