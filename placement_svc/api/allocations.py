"""Allocations (`docs/spec/allocations.md 4, 5, 7 and 8`)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from flask import Blueprint, Response, g, jsonify

from placement_svc.api.context import claim_service, database, load_query, reader, settings
from placement_svc.api.pages import join_pieces
from placement_svc.db import allocations, consumer_pages
from placement_svc.db.connections.standbys import Reader
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import Invalid
from placement_svc.domain.execution import request_stats
from placement_svc.http import caching
from placement_svc.http.body import read_json
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import dumps, respond
from placement_svc.http.microversion import since
from placement_svc.http.policy import enforce
from placement_svc.schemas.allocations import parse_claim, parse_claims
from placement_svc.schemas.consumers import AllocationsQuery, parse_allocations_query
from placement_svc.schemas.scalars import ANY_UUID, normalized_uuid

bp = Blueprint("allocations", __name__)

OBJECTS_PER_READ = 100
"""The most providers or consumers whose allocations one transaction reads; this bounds the memory."""


@bp.post("/allocations")
@endpoint("allocations:manage", introduced="1.13", reads_json=True)
def replace_allocations() -> Response:
    """Replace the allocations of several consumers: of all of them, or of none."""
    claims = parse_claims(read_json(), g.microversion)
    _replace(claims, unknown_class_message="Unable to allocate inventory No such resource class {}.")
    return Response(status=204)


def _replace(claims: Sequence[Claim], *, unknown_class_message: str) -> None:
    """Replace the allocations of the consumers of `claims`; raises the errors of `ClaimService`."""
    request_stats.current().is_claim = any(claim.allocations for claim in claims)
    claim_service().replace_allocations(
        claims, compare_generations=since("1.28"), unknown_class_message=unknown_class_message
    )


@bp.get("/allocations")
@endpoint("allocations:list_many", introduced="1.0", is_extension=True, checks_accept=True, may_be_stale=True)
def list_allocations() -> Response:
    """List the allocations of several providers, or those of several consumers."""
    key, uuids = parse_allocations_query(load_query(AllocationsQuery))
    if key == "rp_uuid":
        enforce("resource_providers:allocations:list")
        name, bodies = "resource_providers", _provider_bodies
    else:
        enforce("allocations:list")
        name, bodies = "consumers", _consumer_bodies
    response = respond(join_pieces(f'{{"{name}":{{'.encode(), _members(bodies(reader(), uuids))))
    return caching.set_cache_headers(response, caching.now())


def _members(bodies: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """Yield the members of a JSON object with the commas between them, then the end of the response."""
    separator = b""
    for uuid, body in bodies:
        yield separator + dumps(uuid) + b":" + dumps(body)
        separator = b","
    yield b"}}"


def _batches(uuids: list[str]) -> Iterator[list[str]]:
    """Yield the uuids in lists of at most `OBJECTS_PER_READ`."""
    for start in range(0, len(uuids), OBJECTS_PER_READ):
        yield uuids[start : start + OBJECTS_PER_READ]


def _provider_bodies(source: Reader, uuids: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield each provider that exists, with the body of its single read."""
    for batch in _batches(uuids):
        for uuid, (generation, by_consumer) in source.read(allocations.of_providers, batch).items():
            yield uuid, {"allocations": by_consumer, "resource_provider_generation": generation}


def _consumer_bodies(source: Reader, uuids: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield each consumer that exists, with the body of its single read."""
    for batch in _batches(uuids):
        for found in source.read(consumer_pages.find, batch):
            yield (
                found.consumer.uuid,
                {
                    "allocations": found.allocations,
                    "project_id": found.consumer.project_id,
                    "user_id": found.consumer.user_id,
                    "consumer_generation": found.consumer.generation,
                    "consumer_type": found.consumer.consumer_type,
                },
            )


@bp.get("/allocations/<consumer_uuid>")
@endpoint("allocations:list", introduced="1.0", checks_accept=True)
def show_allocations(consumer_uuid: str) -> Response:
    """Show the allocations of a consumer, with its project, user, generation and type."""
    found = database().read(allocations.of_consumer, consumer_uuid)
    by_provider: dict[str, Any] = {}
    for allocation in found:
        of_provider = by_provider.setdefault(
            allocation.provider_uuid, {"generation": allocation.provider_generation, "resources": {}}
        )
        of_provider["resources"][allocation.resource_class] = allocation.used
    body: dict[str, Any] = {"allocations": by_provider}
    if found:
        consumer = found[0]
        if since("1.12"):
            body["project_id"] = consumer.project_id
            body["user_id"] = consumer.user_id
        if since("1.28"):
            body["consumer_generation"] = consumer.consumer_generation
        if since("1.38"):
            body["consumer_type"] = consumer.consumer_type
    return caching.set_cache_headers(
        jsonify(body), caching.newest(allocation.created_at for allocation in found)
    )


def _incomplete_consumer() -> dict[str, str]:
    """Return the project and user of consumers that are claimed before 1.8."""
    configured = settings()
    return {
        "project_id": configured.incomplete_consumer_project_id,
        "user_id": configured.incomplete_consumer_user_id,
    }


@bp.put("/allocations/<consumer_uuid>")
@endpoint("allocations:update", introduced="1.0", reads_json=True)
def replace_consumer_allocations(consumer_uuid: str) -> Response:
    """Replace the allocations of a consumer."""
    if not ANY_UUID.fullmatch(consumer_uuid):
        raise Invalid(f"Malformed consumer_uuid: {consumer_uuid}")
    uuid = normalized_uuid(consumer_uuid)
    claim = parse_claim(uuid, read_json(), g.microversion, _incomplete_consumer())
    failure = f"Unable to allocate inventory for consumer {uuid}"
    _replace([claim], unknown_class_message=f"{failure}: No such resource class {{}}.")
    return Response(status=204)


@bp.delete("/allocations/<consumer_uuid>")
@endpoint("allocations:delete", introduced="1.0")
def delete_allocations(consumer_uuid: str) -> Response:
    """Delete all allocations of a consumer."""
    claim_service().delete_consumer(consumer_uuid)
    return Response(status=204)


@bp.get("/resource_providers/<uuid>/allocations")
@endpoint("resource_providers:allocations:list", introduced="1.0", checks_accept=True)
def list_provider_allocations(uuid: str) -> Response:
    """List the allocations of a provider, by consumer."""
    generation, found = database().read(allocations.of_provider, uuid)
    by_consumer: dict[str, Any] = {}
    for allocation in found:
        of_consumer = by_consumer.setdefault(allocation.consumer_uuid, {"resources": {}})
        of_consumer["resources"][allocation.resource_class] = allocation.used
        if since("1.28"):
            of_consumer["consumer_generation"] = allocation.consumer_generation
    response = jsonify(allocations=by_consumer, resource_provider_generation=generation)
    return caching.set_cache_headers(response, caching.newest(allocation.created_at for allocation in found))
