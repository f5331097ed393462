"""What answers look like at the newest microversion (`docs/spec/resources.md`, `docs/spec/allocations.md`).

They describe; nothing is checked by them before it is sent. A member is there from the microversion
on that it names. What a body may say as well as an answer stands with the bodies.
"""

from placement_svc.domain.inventory import MAX_INTEGER
from placement_svc.domain.limits import MAX_PROVIDER_NAME_LENGTH, MAX_SUFFIX_LENGTH
from placement_svc.schemas.base import (
    DASHED_UUID,
    NAME,
    UUID_KEY,
    Array,
    Document,
    Integer,
    Map,
    Number,
    Object,
    String,
)

GENERATION = {"description": "Rises whenever what it belongs to changes."}


class Link(Document):
    """Where something is found."""

    rel = String(required=True)
    href = String(required=True, metadata={"description": "A path, without scheme and host."})


class Version(Document):
    """An API and its microversions."""

    id = String(required=True)
    min_version = String(required=True, pattern=r"^\d+\.\d+$")
    max_version = String(required=True, pattern=r"^\d+\.\d+$")
    status = String(required=True)
    links = Array(Object(Link()), required=True)


class Versions(Document):
    """The APIs that are served: it is one."""

    versions = Array(Object(Version()), required=True)


class Provider(Document):
    """A resource provider; a root has no parent, and is its own root."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True, max_length=MAX_PROVIDER_NAME_LENGTH)
    generation = Integer(required=True, metadata=GENERATION)
    links = Array(Object(Link()), required=True)
    parent_provider_uuid = String(required=True, uuid=DASHED_UUID, allow_none=True, since="1.14")
    root_provider_uuid = String(required=True, uuid=DASHED_UUID, since="1.14")


class Providers(Document):
    """Resource providers."""

    resource_providers = Array(Object(Provider()), required=True)


class HeldInventory(Document):
    """How much of one class a provider has, and in what portions it is given."""

    total = Integer(1, MAX_INTEGER, required=True)
    reserved = Integer(0, MAX_INTEGER, required=True)
    min_unit = Integer(1, MAX_INTEGER, required=True)
    max_unit = Integer(1, MAX_INTEGER, required=True)
    step_size = Integer(1, MAX_INTEGER, required=True)
    allocation_ratio = Number(required=True)


class Inventory(HeldInventory):
    """One inventory, with the generation of its provider."""

    resource_provider_generation = Integer(required=True, metadata=GENERATION)


class Inventories(Document):
    """The inventories of a provider, by resource class."""

    resource_provider_generation = Integer(required=True, metadata=GENERATION)
    inventories = Map(NAME, Object(HeldInventory()), required=True)


class ProviderUsages(Document):
    """How much is used of each class that a provider has."""

    resource_provider_generation = Integer(required=True, metadata=GENERATION)
    usages = Map(NAME, Integer(0), required=True)


class JoinedAggregates(Document):
    """The uuids of the aggregates that a provider is in, each as it was sent."""

    aggregates = Array(String(), required=True)
    resource_provider_generation = Integer(required=True, since="1.19", metadata=GENERATION)


class HeldTraits(Document):
    """The traits of a provider."""

    traits = Array(String(pattern=NAME), required=True)
    resource_provider_generation = Integer(required=True, metadata=GENERATION)


class Holding(Document):
    """What a consumer holds of a provider."""

    resources = Map(NAME, Integer(1), required=True)
    consumer_generation = Integer(required=True, since="1.28", metadata=GENERATION)


class ProviderAllocations(Document):
    """What is held of a provider, by the uuid of the consumer."""

    allocations = Map(UUID_KEY, Object(Holding()), required=True)
    resource_provider_generation = Integer(required=True, metadata=GENERATION)


class HeldAllocation(Document):
    """What a consumer holds of a provider, with the generation of that provider."""

    generation = Integer(required=True, metadata=GENERATION)
    resources = Map(NAME, Integer(1), required=True)


class ConsumerAllocations(Document):
    """What a consumer holds, by the uuid of the provider; without any, `allocations` is all there is."""

    allocations = Map(UUID_KEY, Object(HeldAllocation()), required=True)
    project_id = String(since="1.12")
    user_id = String(since="1.12")
    consumer_generation = Integer(since="1.28", metadata=GENERATION)
    consumer_type = String(since="1.38")


class ResourceClass(Document):
    """A resource class."""

    name = String(required=True, pattern=NAME)
    links = Array(Object(Link()), required=True)


class ResourceClasses(Document):
    """Resource classes."""

    resource_classes = Array(Object(ResourceClass()), required=True)


class Traits(Document):
    """Names of traits."""

    traits = Array(String(pattern=NAME), required=True)


class Amounts(Document):
    """Amounts by resource class."""

    resources = Map(NAME, Integer(1), required=True)


class AllocationRequest(Document):
    """A set of allocations that would fit, ready to be claimed; and who supplies which request group."""

    allocations = Map(UUID_KEY, Object(Amounts()), required=True)
    mappings = Map(
        rf"^[a-zA-Z0-9_-]{{0,{MAX_SUFFIX_LENGTH}}}$",
        Array(String(uuid=DASHED_UUID), min_items=1),
        required=True,
        since="1.34",
        metadata={"description": "The uuids of the suppliers of each group, by its suffix."},
    )


class InventoryUsage(Document):
    """How much of one class a provider can give, and how much of that is used."""

    capacity = Integer(required=True)
    used = Integer(0, required=True)


class ProviderSummary(Document):
    """How full a provider is, what it is like, and where it stands."""

    resources = Map(NAME, Object(InventoryUsage()), required=True)
    traits = Array(String(pattern=NAME), required=True, since="1.17")
    parent_provider_uuid = String(required=True, uuid=DASHED_UUID, allow_none=True, since="1.29")
    root_provider_uuid = String(required=True, uuid=DASHED_UUID, since="1.29")


class AllocationCandidates(Document):
    """The allocation candidates, and all providers of their trees by uuid."""

    allocation_requests = Array(Object(AllocationRequest()), required=True)
    provider_summaries = Map(UUID_KEY, Object(ProviderSummary()), required=True)


class Usages(Document):
    """Amounts by resource class, by type of consumer; `consumer_count` is how many consumers they are."""

    usages = Map(
        "^([A-Z0-9_]+|all|unknown)$", Map("^([A-Z0-9_]+|consumer_count)$", Integer(0)), required=True
    )


class SizedAggregate(Document):
    """An aggregate, and how many providers are in it."""

    uuid = String(required=True)
    resource_providers = Integer(1, required=True)


class AggregateList(Document):
    """Aggregates."""

    aggregates = Array(Object(SizedAggregate()), required=True)


class AggregateMember(Document):
    """A provider by its uuid and name."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True)


class AggregateMembers(Document):
    """An aggregate, and the providers that are in it."""

    uuid = String(required=True)
    resource_providers = Array(Object(AggregateMember()), min_items=1, required=True)


class Error(Document):
    """What went wrong; go by `status` and `code`, for the wording of `detail` may change."""

    status = Integer(400, 599, required=True)
    title = String(required=True)
    detail = String(required=True)
    code = String(pattern=r"^placement\.[a-z_.]+$", since="1.23")
    request_id = String(required=True)
    max_version = String(metadata={"description": "Only if the microversion asked for is not served."})
    min_version = String(metadata={"description": "Only if the microversion asked for is not served."})


class Errors(Document):
    """The error of a request: there is one."""

    errors = Array(Object(Error()), min_items=1, required=True)


class Unauthorized(Document):
    """An error of a request that did not say who asks."""

    message = String(required=True)
    code = String(required=True)
    title = String(required=True)


class KeystoneError(Document):
    """What went wrong, as the middleware of Keystone tells it."""

    code = Integer(required=True)
    title = String(required=True)
    message = String(required=True)


class KeystoneUnauthorized(Document):
    """An error of a request whose token Keystone does not know."""

    error = Object(KeystoneError(), required=True)
