"""Schemas of bodies with allocations (`docs/spec/allocations.md 3`).

A class name ends in the microversion that introduced that form.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from placement_svc.domain.allocations import Claim
from placement_svc.domain.limits import MAX_ID_LENGTH, MAX_NAME_LENGTH
from placement_svc.schemas.base import Array, Map, Object, Schema, check
from placement_svc.schemas.scalars import ANY_UUID, NAME, SUFFIX, UUID_KEY, Integer, String, Version


class ResourceAmounts(Map):
    """Amounts by resource class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(NAME, Integer(minimum=1), min_members=1, **options)


class ConsumerType(String):
    """The name of a consumer type."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_length=1, max_length=MAX_NAME_LENGTH, pattern=NAME, **options)


class ProviderReference(Schema):
    """The uuid of a resource provider, in an object of its own."""

    uuid = String(uuid=ANY_UUID, required=True)


class AllocationV1_0(Schema):
    """Allocations of one consumer from one provider, as an item of a list."""

    resource_provider = Object(ProviderReference(), required=True)
    resources = ResourceAmounts(required=True)


class AllocationV1_12(Schema):
    """Allocations of one consumer from the provider that is the key; `generation` is ignored."""

    resources = ResourceAmounts(required=True)
    generation = Integer()


class ClaimV1_0(Schema):
    """The body of PUT /allocations/{consumer_uuid} before 1.12."""

    allocations = Array(Object(AllocationV1_0()), min_items=1, required=True)
    project_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True, since="1.8")
    user_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True, since="1.8")


class ClaimV1_13(Schema):
    """All allocations of one consumer; they may be empty.

    One member of POST /allocations, and of `allocations` in POST /reshaper. Since 1.28 also the body of
    PUT /allocations/{consumer_uuid}.
    """

    allocations = Map(UUID_KEY, Object(AllocationV1_12()), required=True)
    project_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True)
    user_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True)
    consumer_generation = Integer(allow_none=True, required=True, since="1.28")
    # Checked, then ignored: clients send back allocation requests as allocation candidates list them.
    mappings = Map(
        SUFFIX,
        Array(String(uuid=ANY_UUID), min_items=1),
        min_members=1,
        closed=False,
        since="1.34",
    )
    consumer_type = ConsumerType(required=True, since="1.38")


class ClaimV1_12(ClaimV1_13):
    """The body of PUT /allocations/{consumer_uuid} from 1.12 to 1.27: the allocations must not be empty."""

    allocations = Map(UUID_KEY, Object(AllocationV1_12()), min_members=1, required=True)


@cache
def claims_field(version: Version, min_members: int = 0) -> Map:
    """Return the field of the claims of a microversion, by consumer uuid."""
    return Map(UUID_KEY, Object(ClaimV1_13.at(version)), min_members=min_members, required=True)


def to_claim(consumer_uuid: str, loaded: Mapping[str, Any]) -> Claim:
    """Return the claim of a consumer from a loaded `ClaimV1_...`."""
    allocations = loaded["allocations"]
    if isinstance(allocations, list):
        by_provider = {item["resource_provider"]["uuid"]: item["resources"] for item in allocations}
    else:
        by_provider = {provider: item["resources"] for provider, item in allocations.items()}
    return Claim(
        consumer_uuid=consumer_uuid,
        project_id=loaded["project_id"],
        user_id=loaded["user_id"],
        consumer_type=loaded.get("consumer_type"),
        generation=loaded.get("consumer_generation"),
        allocations=by_provider,
    )


def parse_claim(
    consumer_uuid: str, body: Any, version: Version, incomplete_consumer: Mapping[str, str]
) -> Claim:
    """Return the claim in the body of PUT /allocations/{consumer_uuid}; raise `Invalid`.

    `incomplete_consumer` has the `project_id` and the `user_id` to use before 1.8, when bodies have none.
    """
    if version >= (1, 28):
        schema: type[Schema] = ClaimV1_13
    else:
        schema = ClaimV1_12 if version >= (1, 12) else ClaimV1_0
    return to_claim(consumer_uuid, {**incomplete_consumer, **schema.at(version).check(body)})


def parse_claims(body: Any, version: Version) -> list[Claim]:
    """Return the claims in the body of POST /allocations, in their order; raise `Invalid`."""
    loaded = check(claims_field(version, min_members=1), body)
    return [to_claim(consumer_uuid, claim) for consumer_uuid, claim in loaded.items()]
