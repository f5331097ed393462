"""The body of POST /claims and its response (`docs/spec/extensions.md 5`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote as quote_url

from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import BadQueryValue, Invalid
from placement_svc.domain.limits import MAX_ID_LENGTH, MAX_REQUEST_LINE
from placement_svc.domain.placing.placements import PlacementRequest
from placement_svc.domain.wording import counted
from placement_svc.schemas.allocation_candidates import check_group_count, parse_request
from placement_svc.schemas.allocations import ConsumerType
from placement_svc.schemas.base import BODY_ERROR_PREFIX, Array, Map, Object, Schema
from placement_svc.schemas.query import Pairs, check_lists, parse_pairs
from placement_svc.schemas.responses import AmountsSchema, Mappings
from placement_svc.schemas.scalars import (
    ANY_UUID,
    DASHED_UUID,
    UUID_KEY,
    Boolean,
    Integer,
    String,
    Version,
    normalized_uuid,
)

MAX_CONSUMERS = 1000
"""The most consumers of one call."""

EXPLANATION = "/allocation_candidates/explanation?"


class ClaimedConsumerSchema(Schema):
    """A consumer to place."""

    uuid = String(uuid=ANY_UUID, required=True)
    project_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True)
    user_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True)
    consumer_type = ConsumerType(required=True)
    consumer_generation = Integer(
        allow_none=True,
        required=True,
        metadata={"description": "null for a new consumer; a consumer with a generation is moved."},
    )


class ClaimsRequest(Schema):
    """The body of POST /claims."""

    request = String(
        max_length=MAX_REQUEST_LINE,
        required=True,
        metadata={
            "description": "A query string of `GET /allocation_candidates` at 1.39, with its extensions."
            " `limit` has no effect."
        },
    )
    consumers = Array(Object(ClaimedConsumerSchema()), min_items=1, max_items=MAX_CONSUMERS, required=True)
    min_count = Integer(
        1,
        MAX_CONSUMERS,
        metadata={
            "description": "How many of the consumers have to be placed; default: all of them. If fewer than"
            " all, every consumer must be new."
        },
    )
    placement_group = String(
        uuid=ANY_UUID,
        metadata={"description": "The group that the consumers become members of; its policy is kept."},
    )
    dry_run = Boolean(metadata={"description": "Whether nothing is changed; the default is false."})


class RootSchema(Schema):
    """A root provider."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True)


class PlacementSchema(Schema):
    """The allocations that a consumer has got."""

    consumer_uuid = String(required=True, uuid=DASHED_UUID)
    consumer_generation = Integer(required=True)
    allocations = Map(
        UUID_KEY,
        Object(AmountsSchema()),
        required=True,
    )
    mappings = Mappings(
        metadata={"description": "The providers that supply each request group, by its suffix."},
    )
    root = Object(
        RootSchema(),
        required=True,
        metadata={
            "description": "The root of the suppliers that are not sharing providers; the first by uuid."
        },
    )


class ClaimsSchema(Schema):
    """The placed consumers in the order of the request, and the uuids of those after them."""

    claims = Array(Object(PlacementSchema()), required=True)
    unplaced = Array(String(uuid=DASHED_UUID), required=True)
    attempts = Integer(
        1, required=True, metadata={"description": "How many snapshots of the cloud were searched."}
    )
    violations = Array(
        String(uuid=DASHED_UUID),
        metadata={"description": "With a placement group: the consumers placed against its soft policy."},
    )


def parse_claims_request(
    body: Any, version: Version, *, base_path: str, max_groups: int, max_items: int
) -> tuple[PlacementRequest, bool]:
    """Return the request in the body of POST /claims, and whether it is a dry run; raise `Invalid`.

    `base_path` is the path of the API, to which paths in responses are relative.
    """
    loaded = ClaimsRequest.at(version).check(body)
    consumers = [_to_consumer(each) for each in loaded["consumers"]]
    if len({consumer.consumer_uuid for consumer in consumers}) < len(consumers):
        raise Invalid(f"{BODY_ERROR_PREFIX}'consumers' has the same uuid twice.")
    moved = [consumer.consumer_uuid for consumer in consumers if consumer.generation is not None]
    pairs = _request_pairs(loaded["request"], max_groups, max_items)
    request = parse_request(pairs, version, extended=True)
    wanted = PlacementRequest(
        # A request that is not changed stays the cached object, by which its search is cached.
        request=replace(request, ignore_consumer=frozenset(moved)) if moved else request,
        consumers=consumers,
        min_count=loaded.get("min_count", len(consumers)),
        explanation=_explanation(base_path, loaded["request"], moved),
        placement_group=normalized_uuid(loaded["placement_group"]) if "placement_group" in loaded else None,
    )
    _check_min_count(wanted)
    return wanted, loaded.get("dry_run", False)


def _explanation(base_path: str, request: str, moved: Sequence[str]) -> str | None:
    """Return the path and query of the explanation of a request that ignores the moved consumers.

    None if a request line cannot have them.
    """
    query = quote_url(request, safe="!$&'()*+,;=:@/?%-._~")
    path = base_path + EXPLANATION + "&".join([query, *(f"ignore_consumer={uuid}" for uuid in moved)])
    return path if len(f"GET {path} HTTP/1.1") <= MAX_REQUEST_LINE else None


def _to_consumer(loaded: dict[str, Any]) -> Claim:
    return Claim(
        consumer_uuid=normalized_uuid(loaded["uuid"]),
        project_id=loaded["project_id"],
        user_id=loaded["user_id"],
        consumer_type=loaded["consumer_type"],
        generation=loaded["consumer_generation"],
        allocations={},
    )


def _request_pairs(request: str, max_groups: int, max_items: int) -> Pairs:
    """Return the keys and values of `request`; raise `Invalid` for too many, and for `ignore_consumer`."""
    pairs = parse_pairs(request.encode())
    check_lists(pairs, max_items)
    check_group_count(pairs, max_groups)
    if any(key == "ignore_consumer" for key, _ in pairs):
        raise BadQueryValue(
            "'ignore_consumer' is not allowed in a claim: the allocations of its own consumers are ignored."
        )
    return pairs


def _check_min_count(wanted: PlacementRequest) -> None:
    count = len(wanted.consumers)
    if wanted.min_count > count:
        raise Invalid(
            f"{BODY_ERROR_PREFIX}'min_count' is {wanted.min_count}, but the body has"
            f" {counted(count, 'consumer')}."
        )
    if wanted.min_count < count and wanted.moves:
        raise Invalid(
            f"{BODY_ERROR_PREFIX}'min_count' must be the number of consumers, {count}, if one of them exists"
            " already: give each consumer the consumer_generation null, or leave min_count out."
        )
