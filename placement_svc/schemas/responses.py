"""Schemas of response bodies (`docs/spec/resources.md`, `docs/spec/allocations.md`).

They only describe responses, for OpenAPI: no response is checked against them. A field with `since` is
present from that microversion on. Every class name ends in `Schema` and so differs from the domain class of
the same name. OpenAPI components are named without that ending.
"""

from typing import Any

from placement_svc.domain.inventory import MAX_INTEGER
from placement_svc.domain.limits import MAX_PROVIDER_NAME_LENGTH
from placement_svc.domain.version_header import EXTENSIONS
from placement_svc.schemas.base import Array, Map, Object, Schema
from placement_svc.schemas.scalars import (
    DASHED_UUID,
    MAPPING_KEY,
    NAME,
    NAME_TEXT,
    UUID_KEY,
    Integer,
    Number,
    String,
)

GENERATION = {"description": "Incremented by every change of the provider or consumer that it belongs to."}


class LinkSchema(Schema):
    """A link to a related resource."""

    rel = String(required=True)
    href = String(required=True, metadata={"description": "A path, without scheme and host."})


class VersionSchema(Schema):
    """A version of the API and the microversions that it serves."""

    id = String(required=True)
    min_version = String(required=True, pattern=r"^\d+\.\d+$")
    max_version = String(required=True, pattern=r"^\d+\.\d+$")
    status = String(required=True)
    links = Array(Object(LinkSchema()), required=True)


class VersionRangeSchema(Schema):
    """The oldest and the newest version of the extensions."""

    min_version = String(required=True)
    max_version = String(required=True)


class VersionsSchema(Schema):
    """All versions of the API; there is one. A request that names `placement-svc` gets the range of that."""

    versions = Array(Object(VersionSchema()), required=True)
    extensions = Object(VersionRangeSchema(), data_key=EXTENSIONS)


class ProviderSchema(Schema):
    """A resource provider; a root provider has no parent and is its own root."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True, max_length=MAX_PROVIDER_NAME_LENGTH)
    generation = Integer(required=True, metadata=GENERATION)
    links = Array(Object(LinkSchema()), required=True)
    parent_provider_uuid = String(required=True, uuid=DASHED_UUID, allow_none=True, since="1.14")
    root_provider_uuid = String(required=True, uuid=DASHED_UUID, since="1.14")


class InventoryItemSchema(Schema):
    """The inventory of one resource class."""

    total = Integer(1, MAX_INTEGER, required=True)
    reserved = Integer(0, MAX_INTEGER, required=True)
    min_unit = Integer(1, MAX_INTEGER, required=True)
    max_unit = Integer(1, MAX_INTEGER, required=True)
    step_size = Integer(1, MAX_INTEGER, required=True)
    allocation_ratio = Number(required=True)


class InventorySchema(InventoryItemSchema):
    """The inventory of one resource class, with the generation of its provider."""

    resource_provider_generation = Integer(required=True, metadata=GENERATION)


class InventoriesSchema(Schema):
    """The inventories of a provider, by resource class."""

    resource_provider_generation = Integer(required=True, metadata=GENERATION)
    inventories = Map(NAME, Object(InventoryItemSchema()), required=True)


class ProviderUsagesSchema(Schema):
    """How much is used of each resource class that a provider has an inventory of."""

    resource_provider_generation = Integer(required=True, metadata=GENERATION)
    usages = Map(NAME, Integer(0), required=True)


class ProviderAggregatesSchema(Schema):
    """The aggregates that a provider belongs to; their uuids are spelled as clients sent them."""

    aggregates = Array(String(), required=True)
    resource_provider_generation = Integer(required=True, since="1.19", metadata=GENERATION)


class ProviderTraitsSchema(Schema):
    """The traits of a provider."""

    traits = Array(String(pattern=NAME), required=True)
    resource_provider_generation = Integer(required=True, metadata=GENERATION)


class ProviderAllocationSchema(Schema):
    """The allocations of one consumer from a provider."""

    resources = Map(NAME, Integer(1), required=True)
    consumer_generation = Integer(required=True, since="1.28", metadata=GENERATION)


class ProviderAllocationsSchema(Schema):
    """All allocations from a provider, by consumer uuid."""

    allocations = Map(UUID_KEY, Object(ProviderAllocationSchema()), required=True)
    resource_provider_generation = Integer(required=True, metadata=GENERATION)


class ListedProviderSchema(ProviderSchema):
    """A resource provider, with the parts that the request includes."""

    inventories = Map(NAME, Object(InventoryItemSchema()))
    usages = Map(NAME, Integer(0))
    traits = Array(String(pattern=NAME))
    aggregates = Array(String())
    allocations = Map(UUID_KEY, Object(ProviderAllocationSchema()))


class ProvidersSchema(Schema):
    """Resource providers. A request that uses extensions gets `links`, with the link to the next page."""

    resource_providers = Array(Object(ListedProviderSchema()), required=True)
    links = Array(Object(LinkSchema()))


class ConsumerAllocationSchema(Schema):
    """The allocations of a consumer from one provider, with the generation of that provider."""

    generation = Integer(required=True, metadata=GENERATION)
    resources = Map(NAME, Integer(1), required=True)


class ConsumerAllocationsSchema(Schema):
    """All allocations of a consumer, by provider uuid; if it has none, `allocations` is the only member."""

    allocations = Map(UUID_KEY, Object(ConsumerAllocationSchema()), required=True)
    project_id = String(since="1.12")
    user_id = String(since="1.12")
    consumer_generation = Integer(since="1.28", metadata=GENERATION)
    consumer_type = String(since="1.38")


class ResourceClassSchema(Schema):
    """A resource class."""

    name = String(required=True, pattern=NAME)
    links = Array(Object(LinkSchema()), required=True)


class ResourceClassesSchema(Schema):
    """Resource classes."""

    resource_classes = Array(Object(ResourceClassSchema()), required=True)


class TraitsSchema(Schema):
    """Names of traits."""

    traits = Array(String(pattern=NAME), required=True)


class AmountsSchema(Schema):
    """Amounts by resource class."""

    resources = Map(NAME, Integer(1), required=True)


class Mappings(Map):
    """The uuids of the providers that supply each request group, by its suffix."""

    def __init__(self, **options: Any) -> None:
        super().__init__(MAPPING_KEY, Array(String(uuid=DASHED_UUID), min_items=1), required=True, **options)


class AllocationRequestSchema(Schema):
    """One allocation candidate, in the form in which it can be claimed."""

    allocations = Map(UUID_KEY, Object(AmountsSchema()), required=True)
    mappings = Mappings(
        since="1.34",
        metadata={"description": "The uuids of the providers that supply each request group, by its suffix."},
    )


class InventoryUsageSchema(Schema):
    """The capacity of one inventory, and how much of it is used."""

    capacity = Integer(required=True)
    used = Integer(0, required=True)


class ProviderSummarySchema(Schema):
    """The inventory usages, traits, parent and root of a provider."""

    resources = Map(NAME, Object(InventoryUsageSchema()), required=True)
    traits = Array(String(pattern=NAME), required=True, since="1.17")
    parent_provider_uuid = String(required=True, uuid=DASHED_UUID, allow_none=True, since="1.29")
    root_provider_uuid = String(required=True, uuid=DASHED_UUID, since="1.29")


class AllocationCandidatesSchema(Schema):
    """The allocation candidates, and a summary of every provider in their trees, by uuid."""

    allocation_requests = Array(Object(AllocationRequestSchema()), required=True)
    provider_summaries = Map(UUID_KEY, Object(ProviderSummarySchema()), required=True)


class UsagesSchema(Schema):
    """Used amounts by consumer type and resource class; `consumer_count` is the number of consumers."""

    usages = Map(
        f"^({NAME_TEXT}|all|unknown)$", Map(f"^({NAME_TEXT}|consumer_count)$", Integer(0)), required=True
    )


class AggregateSizeSchema(Schema):
    """An aggregate and the number of providers in it."""

    uuid = String(required=True)
    resource_providers = Integer(1, required=True)


class AggregateListSchema(Schema):
    """Aggregates."""

    aggregates = Array(Object(AggregateSizeSchema()), required=True)


class AggregateMemberSchema(Schema):
    """A provider in an aggregate."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True)


class AggregateMembersSchema(Schema):
    """An aggregate and the providers in it."""

    uuid = String(required=True)
    resource_providers = Array(Object(AggregateMemberSchema()), min_items=1, required=True)


class ErrorSchema(Schema):
    """An error. Clients should rely on `status` and `code`; the wording of `detail` may change."""

    status = Integer(400, 599, required=True)
    title = String(required=True)
    detail = String(required=True)
    code = String(pattern=r"^placement(_svc)?\.[a-z_.]+$", since="1.23")
    request_id = String(required=True)
    placeable = Integer(
        0,
        metadata={"description": "Only if `POST /claims` finds no candidates: the consumers that have some."},
    )
    explanation = String(
        allow_none=True,
        metadata={
            "description": "Only if `POST /claims` finds no candidates: the path that explains it, null if it"
            " is longer than a request line can be."
        },
    )
    placement_group = String(
        metadata={
            "description": "Only if `POST /claims` finds no candidates because of this placement group."
        }
    )
    max_version = String(
        metadata={"description": "Present only if the requested microversion is not supported."}
    )
    min_version = String(
        metadata={"description": "Present only if the requested microversion is not supported."}
    )


class ErrorsSchema(Schema):
    """The error of a request; there is one."""

    errors = Array(Object(ErrorSchema()), min_items=1, required=True)


class UnauthorizedSchema(Schema):
    """The error of a request without credentials."""

    message = String(required=True)
    code = String(required=True)
    title = String(required=True)


class KeystoneErrorSchema(Schema):
    """An error as the Keystone middleware words it."""

    code = Integer(required=True)
    title = String(required=True)
    message = String(required=True)


class KeystoneUnauthorizedSchema(Schema):
    """The error of a request whose token Keystone does not accept."""

    error = Object(KeystoneErrorSchema(), required=True)


class EmptyAnswerSchema(Schema):
    """A request for allocation candidates whose response had none; the ids are null if they are not known."""

    id = String(required=True, uuid=DASHED_UUID)
    created_at = String(required=True)
    query = String(required=True)
    request_id = String(required=True)
    global_request_id = String(required=True, allow_none=True)
    user_id = String(required=True, allow_none=True)
    project_id = String(required=True, allow_none=True)


class EmptyAnswersSchema(Schema):
    """The latest requests for allocation candidates without any, newest first."""

    empty = Array(Object(EmptyAnswerSchema()), required=True)
    links = Array(Object(LinkSchema()), required=True)
