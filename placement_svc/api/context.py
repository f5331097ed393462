"""What every endpoint reaches for: the database and the present request, checked."""

from typing import Any

from flask import current_app, g, request

from placement_svc.config import Settings
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.engine import Database
from placement_svc.http.body import read_json
from placement_svc.schemas.base import Schema
from placement_svc.schemas.query import ERROR_PREFIX, check_lists, parse_pairs


def database() -> Database:
    """Return the database of the present application."""
    found: Database = current_app.extensions["database"]
    return found


def claim_service() -> ClaimService:
    """Return the claim service of the present application."""
    found: ClaimService = current_app.extensions["claim_service"]
    return found


def settings() -> Settings:
    """Return the settings of the present application."""
    configured: Settings = current_app.extensions["settings"]
    return configured


def load_body(document: type[Schema]) -> Any:
    """Return what the body means as `document`; raises `Invalid` for what it may not say."""
    return document.at(g.microversion).check(read_json())


def load_pairs() -> list[tuple[str, str]]:
    """Return the keys and values of the query string; raises `Invalid` for lists that are too long."""
    pairs = parse_pairs(request.query_string)
    check_lists(pairs, settings().max_items)
    return pairs


def load_query(document: type[Schema]) -> Any:
    """Return what the query string means as `document`; of a repeated key the last value counts."""
    return document.at(g.microversion).check(dict(load_pairs()), ERROR_PREFIX)
