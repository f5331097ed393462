"""Schemas of the responses of lists that are extensions (`docs/spec/extensions.md 6`)."""

from placement_svc.schemas.base import Array, Map, Object, Schema
from placement_svc.schemas.responses import (
    GENERATION,
    ConsumerAllocationSchema,
    ConsumerAllocationsSchema,
    LinkSchema,
    ProviderAllocationsSchema,
)
from placement_svc.schemas.scalars import DASHED_UUID, NAME, UUID_KEY, Integer, String


class AllocationListSchema(Schema):
    """The allocations of providers or of consumers, by uuid; those that do not exist are absent."""

    resource_providers = Map(UUID_KEY, Object(ProviderAllocationsSchema()))
    consumers = Map(UUID_KEY, Object(ConsumerAllocationsSchema()))


class ConsumerSchema(Schema):
    """A consumer. The times are null if they are unknown; `updated_at` is that of the last later claim."""

    uuid = String(required=True)
    generation = Integer(required=True, metadata=GENERATION)
    project_id = String(required=True)
    user_id = String(required=True)
    consumer_type = String(required=True)
    created_at = String(required=True, allow_none=True)
    updated_at = String(required=True, allow_none=True)


class ListedConsumerSchema(ConsumerSchema):
    """A consumer, with its allocations if the request includes them."""

    allocations = Map(UUID_KEY, Object(ConsumerAllocationSchema()))


class ConsumersSchema(Schema):
    """A page of consumers, and the link to the next page."""

    consumers = Array(Object(ListedConsumerSchema()), required=True)
    links = Array(Object(LinkSchema()), required=True)


class ClassCapacitySchema(Schema):
    """Sums over the inventories of a class. Groups of consumers have only `used`."""

    total = Integer(0)
    reserved = Integer(0)
    capacity = Integer(metadata={"description": "Rounded down for each inventory."})
    used = Integer(0, required=True)
    free = Integer(0, metadata={"description": "What is free in each inventory, at least 0."})
    max_free = Integer(0, metadata={"description": "The largest amount that one inventory grants now."})


class CapacityRootSchema(Schema):
    """The root provider of a group."""

    uuid = String(required=True, uuid=DASHED_UUID)
    name = String(required=True)


class CapacityGroupSchema(Schema):
    """The sums of a group; the other member is named after the grouping, and null for none."""

    resource_classes = Map(NAME, Object(ClassCapacitySchema()), required=True)
    root = Object(CapacityRootSchema())
    aggregate = String(allow_none=True)
    trait = String(allow_none=True)
    consumer_type = String(allow_none=True)
    project_id = String()


class CapacitySchema(Schema):
    """Sums by resource class, or with `group_by` a page of groups with a link to the next page."""

    resource_classes = Map(NAME, Object(ClassCapacitySchema()))
    groups = Array(Object(CapacityGroupSchema()))
    links = Array(Object(LinkSchema()))


class ProjectUsageSchema(Schema):
    """A project, the number of its consumers, and the sums of their allocations by resource class."""

    project_id = String(required=True)
    consumers = Integer(1, required=True)
    usages = Map(NAME, Integer(1), required=True)


class ProjectsSchema(Schema):
    """A page of projects, and the link to the next page."""

    projects = Array(Object(ProjectUsageSchema()), required=True)
    links = Array(Object(LinkSchema()), required=True)
