"""Bodies and responses of placement groups (`docs/spec/extensions.md 5.2`)."""

from typing import Any

from placement_svc.domain.errors import Invalid
from placement_svc.domain.inventory import MAX_INTEGER
from placement_svc.domain.placement_groups import ANTI_AFFINITY, POLICIES, PlacementGroup
from placement_svc.schemas.aggregates import AggregateUuids
from placement_svc.schemas.any_of import StringOrArray
from placement_svc.schemas.base import Array, Object, Schema
from placement_svc.schemas.pages import PageKeys
from placement_svc.schemas.responses import LinkSchema
from placement_svc.schemas.scalars import DASHED_UUID, Integer, String

ROOT = "root"
"""The value of `across` with which each root is a domain."""

MAX_AGGREGATES = 1000
"""The most aggregates that a group can list. Each claim into the group reads them."""


def _across(*, required: bool) -> StringOrArray:
    return StringOrArray(
        String(choices=[ROOT]),
        AggregateUuids(min_items=1, max_items=MAX_AGGREGATES),
        required=required,
        metadata={
            "description": "`root`, or the aggregates that are the domains; the first of a root counts."
        },
    )


class PlacementGroupBody(Schema):
    """The body of PUT /placement_groups/{uuid}."""

    policy = String(choices=POLICIES, required=True)
    max_per_domain = Integer(
        1,
        MAX_INTEGER,
        allow_none=True,
        metadata={"description": "1 by default; null or omitted with the affinity policies, and only there."},
    )
    across = _across(required=False)


class GroupMemberSchema(Schema):
    """A consumer in a group, and the uuids of its roots."""

    consumer_uuid = String(required=True)
    roots = Array(String(uuid=DASHED_UUID), min_items=1, unique=True, required=True)


class PlacementGroupSchema(Schema):
    """A group with its members, and the uuids of those that violate the policy."""

    uuid = String(uuid=DASHED_UUID, required=True)
    policy = String(choices=POLICIES, required=True)
    max_per_domain = Integer(1, required=True, allow_none=True)
    across = _across(required=True)
    members = Array(Object(GroupMemberSchema()), required=True)
    violations = Array(String(), unique=True, required=True)


class ListedPlacementGroupSchema(Schema):
    """A group and the number of its members."""

    uuid = String(uuid=DASHED_UUID, required=True)
    policy = String(choices=POLICIES, required=True)
    max_per_domain = Integer(1, required=True, allow_none=True)
    across = _across(required=True)
    member_count = Integer(0, required=True)


class PlacementGroupsSchema(Schema):
    """A page of groups, and the link to the next page."""

    placement_groups = Array(Object(ListedPlacementGroupSchema()), required=True)
    links = Array(Object(LinkSchema()), required=True)


class PlacementGroupsQuery(PageKeys):
    """The query parameters of GET /placement_groups."""


def to_group(uuid: str, loaded: dict[str, Any]) -> PlacementGroup:
    """Return the group of a loaded `PlacementGroupBody`; raise `Invalid`."""
    policy, across = loaded["policy"], loaded.get("across", ROOT)
    separates = policy.endswith(ANTI_AFFINITY)
    max_per_domain = loaded.get("max_per_domain", 1 if separates else None)
    if separates and max_per_domain is None:
        raise Invalid(f"The policy {policy} needs a number as 'max_per_domain': omit null to get 1.")
    if not separates and max_per_domain is not None:
        raise Invalid(
            f"The policy {policy} has no 'max_per_domain': omit it,"
            " or use anti-affinity or soft-anti-affinity."
        )
    return PlacementGroup(
        uuid=uuid,
        policy=policy,
        max_per_domain=max_per_domain,
        aggregates=None if across == ROOT else across,
    )


def group_to_json(group: PlacementGroup) -> dict[str, Any]:
    """Return what every response shows of a group."""
    return {
        "uuid": group.uuid,
        "policy": group.policy,
        "max_per_domain": group.max_per_domain,
        "across": ROOT if group.aggregates is None else list(group.aggregates),
    }
