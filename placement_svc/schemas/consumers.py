"""Queries for consumers, projects and allocations (`docs/spec/extensions.md 6.1 and 6.3`)."""

from placement_svc.domain.errors import Invalid
from placement_svc.domain.limits import MAX_ID_LENGTH, MAX_NAME_LENGTH
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.base import Schema
from placement_svc.schemas.pages import PageKeys
from placement_svc.schemas.provider_lists import parse_uuids
from placement_svc.schemas.scalars import DASHED_UUID, DASHED_UUID_KEY, NAME, NAME_TEXT, UUID_KEY, String


class ConsumersQuery(PageKeys):
    """The query parameters of GET /consumers."""

    project_id = String(min_length=1, max_length=MAX_ID_LENGTH)
    user_id = String(min_length=1, max_length=MAX_ID_LENGTH)
    consumer_type = String(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        pattern=rf"^({NAME_TEXT}|unknown)$",
        hint="A consumer type consists of the capital letters A to Z, digits and underscores, or is unknown.",
        metadata={"description": "A consumer type, or `unknown` for consumers without a type."},
    )
    resource_provider = String(
        uuid=DASHED_UUID,
        metadata={"description": "The provider of an allocation of the consumer."},
    )
    in_tree = String(
        uuid=DASHED_UUID,
        metadata={"description": "A provider; the same allocation is from a provider of its tree."},
    )
    resource_class = String(
        pattern=NAME,
        max_length=MAX_NAME_LENGTH,
        metadata={"description": "The resource class of the same allocation."},
    )
    include = String(choices=("allocations",), metadata={"description": "Adds the allocations."})
    sort_by = String(
        pattern=r"^-?created_at$",
        hint="Sort by created_at, or by -created_at for the newest first.",
        metadata={
            "description": "The time of creation; with a leading `-`, the newest first. By default the order"
            " is that of the uuids."
        },
    )


class ProjectsQuery(PageKeys):
    """The query parameters of GET /projects."""

    project_id = String(min_length=1, max_length=MAX_ID_LENGTH)
    sort_by = String(
        pattern=f"^-?{NAME_TEXT}$",
        hint="Sort by a resource class; -VCPU puts the greatest usage first.",
        max_length=MAX_NAME_LENGTH + 1,
        metadata={
            "description": "The usage of a resource class; with a leading `-`, descending. By default the"
            " order is that of the project ids."
        },
    )


class AllocationsQuery(Schema):
    """The query parameters of GET /allocations, of which a request has exactly one."""

    rp_uuid = String(metadata={"description": "Resource providers: `in:UUID,UUID`."})
    consumer_uuid = String(metadata={"description": "Consumers: `in:UUID,UUID`."})


def parse_allocations_query(query: dict[str, str]) -> tuple[str, list[str]]:
    """Return the key of a loaded `AllocationsQuery` and its uuids; raise `Invalid`."""
    if len(query) != 1:
        raise Invalid(f"{QUERY_ERROR}Expected either 'rp_uuid' or 'consumer_uuid', and not both")
    [(key, value)] = query.items()
    return key, parse_uuids(key, value, DASHED_UUID_KEY if key == "rp_uuid" else UUID_KEY)
