"""Helpers of the views: the database, the settings, and the parsed request."""

from typing import Any

from flask import current_app, g, request

from placement_svc.config import Settings
from placement_svc.db import providers
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.engine import Database
from placement_svc.domain.deadline import Deadline
from placement_svc.http.body import read_json
from placement_svc.schemas.base import Schema
from placement_svc.schemas.query import ERROR_PREFIX, check_lists, parse_pairs

IS_CLIENT_GONE = "placement_svc.is_client_gone"
"""The key in the WSGI environment of a function that returns whether the client has disconnected."""


def database() -> Database:
    """Return the database of the current application."""
    current: Database = current_app.extensions["database"]
    return current


def claim_service() -> ClaimService:
    """Return the claim service of the current application."""
    current: ClaimService = current_app.extensions["claim_service"]
    return current


def settings() -> Settings:
    """Return the settings of the current application."""
    current: Settings = current_app.extensions["settings"]
    return current


def request_deadline() -> Deadline:
    """Return the end of the work for the current request: `request_deadline` seconds from now.

    The work ends earlier if the client disconnects and the server can detect this.
    """
    return Deadline.of(settings().request_deadline, request.environ.get(IS_CLIENT_GONE))


def require_provider(uuid: str) -> None:
    """Raise `NotFound` unless the resource provider exists.

    A view that reads a body calls this first, because a missing provider takes precedence over an
    invalid body.
    """
    database().read(providers.get_id, uuid)


def load_body(schema: type[Schema]) -> Any:
    """Return the JSON body as `schema` loads it at the microversion; raise `Invalid` if it is not valid."""
    return schema.at(g.microversion).check(read_json())


def load_pairs() -> list[tuple[str, str]]:
    """Return the keys and values of the query string; raise `Invalid` for a list that is too long."""
    pairs = parse_pairs(request.query_string)
    check_lists(pairs, settings().max_items)
    return pairs


def load_query(schema: type[Schema]) -> Any:
    """Return the query string as `schema` loads it; of a repeated key the last value counts.

    Raises `Invalid`.
    """
    return schema.at(g.microversion).check(dict(load_pairs()), ERROR_PREFIX)
