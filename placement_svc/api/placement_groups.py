"""Placement groups (`docs/spec/extensions.md 5.2`)."""

from collections.abc import Sequence

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import database, load_body, load_query
from placement_svc.api.pages import respond_with_page
from placement_svc.db import placement_groups
from placement_svc.domain.errors import Invalid
from placement_svc.domain.placement_groups import GroupMember, PlacementGroup, violations
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.schemas.pages import parse_page
from placement_svc.schemas.placement_groups import (
    PlacementGroupBody,
    PlacementGroupsQuery,
    group_to_json,
    to_group,
)
from placement_svc.schemas.scalars import ANY_UUID, DASHED_UUID_KEY, normalized_uuid

bp = Blueprint("placement_groups", __name__)

GROUPS_PER_READ = 100
"""How many groups one transaction reads. Each may list 1,000 aggregates."""


def _respond(group: PlacementGroup, members: Sequence[GroupMember], status: int = 200) -> Response:
    response = jsonify(
        **group_to_json(group),
        members=[{"consumer_uuid": member.consumer_uuid, "roots": member.roots} for member in members],
        violations=violations(group, {member.consumer_uuid: member.domains for member in members}),
    )
    response.status_code = status
    return caching.set_cache_headers(response, caching.now())


@bp.get("/placement_groups")
@endpoint("placement_groups:list", introduced="1.0", is_extension=True, checks_accept=True)
def list_placement_groups() -> Response:
    """List placement groups with the number of their members."""
    page = parse_page(load_query(PlacementGroupsQuery), DASHED_UUID_KEY)
    read = database().read
    return respond_with_page(
        "placement_groups",
        page,
        lambda part: read(placement_groups.find_page, part),
        lambda sized: group_to_json(sized.group) | {"member_count": sized.member_count},
        elements_per_read=GROUPS_PER_READ,
    )


@bp.get("/placement_groups/<uuid>")
@endpoint("placement_groups:show", introduced="1.0", is_extension=True, checks_accept=True)
def show_placement_group(uuid: str) -> Response:
    """Show a placement group with its members."""
    return _respond(*database().read(placement_groups.get, _normalized(uuid)))


@bp.put("/placement_groups/<uuid>")
@endpoint("placement_groups:update", introduced="1.0", is_extension=True, reads_json=True)
def replace_placement_group(uuid: str) -> Response:
    """Create a placement group, or replace its policy."""
    if not ANY_UUID.fullmatch(uuid):
        raise Invalid(f"Malformed uuid of a placement group: {uuid}")
    group = to_group(_normalized(uuid), load_body(PlacementGroupBody))
    is_new, members = database().write(placement_groups.put, group)
    return _respond(group, members, 201 if is_new else 200)


@bp.delete("/placement_groups/<uuid>")
@endpoint("placement_groups:delete", introduced="1.0", is_extension=True)
def delete_placement_group(uuid: str) -> Response:
    """Delete a placement group without members."""
    database().write(placement_groups.delete, _normalized(uuid))
    return Response(status=204)


def _normalized(uuid: str) -> str:
    """Return a uuid in the spelling in which it is stored, and any other text unchanged."""
    return normalized_uuid(uuid) if ANY_UUID.fullmatch(uuid) else uuid
