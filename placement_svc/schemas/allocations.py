"""Allocations: bodies (`docs/spec/allocations.md 3`)."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from placement_svc.domain.allocations import Claim
from placement_svc.domain.limits import MAX_ID_LENGTH, MAX_NAME_LENGTH, MAX_SUFFIX_LENGTH
from placement_svc.schemas.base import (
    NAME,
    UUID,
    UUID_KEY,
    Array,
    Document,
    Integer,
    Map,
    Object,
    String,
    check,
)
from placement_svc.schemas.groups import Version


class Resources(Map):
    """Amounts by resource class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(NAME, Integer(minimum=1), min_members=1, **options)


class ConsumerType(String):
    """The name of a type of consumers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_length=1, max_length=MAX_NAME_LENGTH, pattern=NAME, **options)


class NamedProvider(Document):
    """A provider by its uuid."""

    uuid = String(uuid=UUID, required=True)


class ListedAllocation(Document):
    """What a consumer holds of one provider, as an item of a list."""

    resource_provider = Object(NamedProvider(), required=True)
    resources = Resources(required=True)


class KeyedAllocation(Document):
    """What a consumer holds of the provider it is keyed by; a generation is accepted and means nothing."""

    resources = Resources(required=True)
    generation = Integer()


class ListedClaim(Document):
    """PUT /allocations/{consumer_uuid} before 1.12."""

    allocations = Array(Object(ListedAllocation()), min_items=1, required=True)
    project_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True, since="1.8")
    user_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True, since="1.8")


class KeyedClaim(Document):
    """A consumer in POST /allocations and POST /reshaper, and since 1.28 PUT /allocations/{consumer_uuid}."""

    allocations = Map(UUID_KEY, Object(KeyedAllocation()), required=True)
    project_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True)
    user_id = String(min_length=1, max_length=MAX_ID_LENGTH, required=True)
    consumer_generation = Integer(allow_none=True, required=True, since="1.28")
    # Checked for those who send back what allocation candidates told them, and then ignored.
    mappings = Map(
        f"[a-zA-Z0-9_-]{{1,{MAX_SUFFIX_LENGTH}}}",
        Array(String(uuid=UUID), min_items=1),
        min_members=1,
        closed=False,
        since="1.34",
    )
    consumer_type = ConsumerType(required=True, since="1.38")


class NonemptyClaim(KeyedClaim):
    """PUT /allocations/{consumer_uuid} from 1.12 until consumers have generations."""

    allocations = Map(UUID_KEY, Object(KeyedAllocation()), min_members=1, required=True)


@cache
def claims_field(version: Version, min_members: int = 0) -> Map:
    """Return the field of claims by consumer uuid, as a microversion knows them."""
    return Map(UUID_KEY, Object(KeyedClaim.at(version)), min_members=min_members, required=True)


def to_claim(consumer_uuid: str, stated: Mapping[str, Any]) -> Claim:
    """Return the claim that a checked body states for a consumer."""
    held = stated["allocations"]
    if isinstance(held, list):
        by_provider = {item["resource_provider"]["uuid"]: item["resources"] for item in held}
    else:
        by_provider = {provider: item["resources"] for provider, item in held.items()}
    return Claim(
        consumer_uuid=consumer_uuid,
        project_id=stated["project_id"],
        user_id=stated["user_id"],
        consumer_type=stated.get("consumer_type"),
        generation=stated.get("consumer_generation"),
        allocations=by_provider,
    )


def parse_claim(consumer_uuid: str, body: Any, version: Version, incomplete: Mapping[str, str]) -> Claim:
    """Return the claim of the one consumer that `body` is about; raises `Invalid`.

    `incomplete` is the `project_id` and the `user_id` of a consumer whose client is too old to name them.
    """
    if version >= (1, 28):
        document: type[Document] = KeyedClaim
    else:
        document = NonemptyClaim if version >= (1, 12) else ListedClaim
    return to_claim(consumer_uuid, {**incomplete, **document.at(version).check(body)})


def parse_claims(body: Any, version: Version) -> list[Claim]:
    """Return the claim of each consumer in `body`, in their order; raises `Invalid`."""
    stated = check(claims_field(version, min_members=1), body)
    return [to_claim(consumer_uuid, claim) for consumer_uuid, claim in stated.items()]
