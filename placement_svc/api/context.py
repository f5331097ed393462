"""Helpers of the views: the database, the settings, and the parsed request."""

from typing import Any

from flask import Flask, current_app, g, request

from placement_svc.config import Settings
from placement_svc.db import providers
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.connections.cancellation import set_deadline
from placement_svc.db.connections.engine import Database
from placement_svc.db.connections.standbys import Reader, StandbyReads
from placement_svc.db.placing.service import PlacingService
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.request_stats import work_seconds
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.http.body import read_json
from placement_svc.http.environ import IS_CLIENT_GONE, READ_METHODS, SLOT
from placement_svc.schemas.base import Schema
from placement_svc.schemas.query import check_lists, parse_pairs
from placement_svc.schemas.staleness import split_stale


def database() -> Database:
    """Return the database of the current application."""
    current: Database = current_app.extensions["database"]
    return current


def reader() -> Reader:
    """Return what runs the reads of the current request: a standby may if the request allows stale data.

    A request for the API allows it by the query key `stale`, which `load_pairs` evaluates.
    """
    if not g.get("allows_stale"):
        return database()
    standby_reads: StandbyReads = current_app.extensions["standby_reads"]
    return standby_reads


def claim_service() -> ClaimService:
    """Return the claim service of the current application."""
    current: ClaimService = current_app.extensions["claim_service"]
    return current


def placing_service() -> PlacingService:
    """Return the service of the current application that places consumers."""
    current: PlacingService = current_app.extensions["placing_service"]
    return current


def settings() -> Settings:
    """Return the settings of the current application."""
    current: Settings = current_app.extensions["settings"]
    return current


def request_deadline() -> Deadline:
    """Return the end of the work for the current request, `request_deadline` seconds after its start.

    The work ends earlier if the client disconnects and the server can detect this.
    """
    deadline: Deadline = g.deadline
    return deadline


def install_deadline(app: Flask) -> None:
    """Give each request to `app` a deadline, which also bounds the SQL statements of a read."""

    @app.before_request
    def start() -> None:
        environ = request.environ
        g.deadline = Deadline.of(
            settings().request_deadline,
            is_abandoned=environ.get(IS_CLIENT_GONE),
            slot=environ.get(SLOT),
            work_seconds=work_seconds,
        )
        set_deadline(g.deadline if request.method in READ_METHODS else None)

    @app.teardown_request
    def end(_error: BaseException | None) -> None:
        set_deadline(None)


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
    """Return the keys and values of the query string; raise `Invalid` for a list that is too long.

    The key `stale` is not among them if the endpoint knows it: `reader` depends on it.
    """
    pairs = parse_pairs(request.query_string)
    check_lists(pairs, settings().max_items)
    if g.get("knows_stale"):
        pairs, g.allows_stale = split_stale(pairs)
    return pairs


def load_query(schema: type[Schema]) -> Any:
    """Return the query string as `schema` loads it; of a repeated key the last value counts.

    Raises `Invalid`.
    """
    return schema.at(g.microversion).check(dict(load_pairs()), QUERY_ERROR)
