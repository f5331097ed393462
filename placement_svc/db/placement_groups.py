"""Placement groups and their members.

The row of a group is its lock: a claim into the group, a PUT and a DELETE lock it before any other row. Other
writes do not: they delete memberships only together with the consumer, which they have locked.
"""

from collections.abc import Collection, Sequence
from typing import Any

import os_traits
from sqlalchemy import Connection, Row, exists, func, select, text
from sqlalchemy import delete as delete_from
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.dialects.postgresql import insert as upsert_into

from placement_svc.db.arrays import insert_rows
from placement_svc.db.filters import is_any
from placement_svc.db.pages import Order, select_page, to_page
from placement_svc.db.row_locks import NO_KEY_UPDATE
from placement_svc.db.tables import placement_group_aggregates, placement_group_members, placement_groups
from placement_svc.domain.errors import NotFound, PlacementGroupInUse, UnknownPlacementGroup
from placement_svc.domain.pages import Page, PageRequest, Position
from placement_svc.domain.placement_groups import Domain, GroupMember, PlacementGroup, SizedGroup


def _domains(root_ids: str) -> str:
    """Return table expressions, of which `root_domain` has the uuid and the domain of each of these roots.

    `root_ids` is an array in SQL. The domain is the root, or the first of the group's aggregates that it is a
    member of itself. A subquery for each root would read all listed aggregates each time.
    """
    return f"""
        listed AS MATERIALIZED (
            SELECT aggregate.id, aggregate.uuid, named.position
              FROM placement_group_aggregates AS named
              JOIN aggregates AS aggregate ON aggregate.uuid = named.aggregate_uuid
             WHERE named.group_id = :group_id
        ), first_listed AS (
            SELECT DISTINCT ON (joined.provider_id) joined.provider_id, listed.uuid
              FROM provider_aggregates AS joined
              JOIN listed ON listed.id = joined.aggregate_id
             WHERE joined.provider_id = ANY ({root_ids})
             ORDER BY joined.provider_id, listed.position
        ), root_domain AS (
            SELECT root.id, root.uuid,
                   CASE WHEN EXISTS (SELECT FROM placement_group_aggregates WHERE group_id = :group_id)
                        THEN first_listed.uuid
                        ELSE root.uuid
                    END AS domain
              FROM resource_providers AS root
              LEFT JOIN first_listed ON first_listed.provider_id = root.id
             WHERE root.id = ANY ({root_ids})
        )
    """


_ROOTS = text(f"WITH {_domains(':root_ids')} SELECT * FROM root_domain")

# One statement, so that it sees one snapshot: a member can be released, and its root deleted, at any time.
# The primary keys serve every lookup, and the index on (group_id, consumer_id) the members. The rows read
# are the allocations of the members.
_ROOTS_OF_MEMBERS = text(f"""
    WITH held AS MATERIALIZED (
        SELECT consumer.uuid AS consumer_uuid, provider.root_id,
               bool_or(NOT provider.trait_ids @> ARRAY[sharing.id]) AS has_other_than_sharing
          FROM placement_group_members AS member
          JOIN consumers AS consumer ON consumer.id = member.consumer_id
          JOIN allocations AS allocation ON allocation.consumer_id = member.consumer_id
          JOIN resource_providers AS provider ON provider.id = allocation.provider_id
          JOIN traits AS sharing ON sharing.name = :sharing_trait
         WHERE member.group_id = :group_id
         GROUP BY consumer.uuid, provider.root_id
    ), {_domains("ARRAY(SELECT DISTINCT root_id FROM held)")}
    SELECT held.consumer_uuid, held.has_other_than_sharing, root_domain.*
      FROM held
      JOIN root_domain ON root_domain.id = held.root_id
     ORDER BY held.consumer_uuid
""")


def get(connection: Connection, uuid: str) -> tuple[PlacementGroup, list[GroupMember]]:
    """Return a group with its members by uuid; raise `NotFound`."""
    found = find(connection, uuid)
    if found is None:
        raise _not_found(uuid)
    group_id, group = found
    return group, members(connection, group_id)


def find(connection: Connection, uuid: str) -> tuple[int, PlacementGroup] | None:
    """Return a group and its id, None if there is none with this uuid."""
    rows = connection.execute(select(placement_groups).where(placement_groups.c.uuid == uuid)).all()
    return (rows[0].id, _to_groups(connection, rows)[0]) if rows else None


def _not_found(uuid: str) -> NotFound:
    return NotFound(f"No placement group with uuid {uuid} found")


def _to_groups(connection: Connection, rows: Sequence[Row[tuple[object, ...]]]) -> list[PlacementGroup]:
    """Return the groups of rows of `placement_groups`, with their aggregates."""
    table = placement_group_aggregates.c
    query = (
        select(table.group_id, func.array_agg(aggregate_order_by(table.aggregate_uuid, table.position)))
        .where(is_any(table.group_id, [row.id for row in rows]))
        .group_by(table.group_id)
    )
    listed: dict[int, list[str]] = dict(connection.execute(query).all())
    return [PlacementGroup(row.uuid, row.policy, row.max_per_domain, listed.get(row.id)) for row in rows]


def members(connection: Connection, group_id: int) -> list[GroupMember]:
    """Return the members of a group in the order of their uuids, each with its roots and their domains."""
    values = {"group_id": group_id, "sharing_trait": os_traits.MISC_SHARES_VIA_AGGREGATE}
    hosts: dict[str, list[Row[Any]]] = {}
    others: dict[str, list[Row[Any]]] = {}
    for root in connection.execute(_ROOTS_OF_MEMBERS, values):
        (hosts if root.has_other_than_sharing else others).setdefault(root.consumer_uuid, []).append(root)
    return [
        GroupMember(
            consumer_uuid,
            roots=sorted(root.uuid for root in roots),
            root_ids=[root.id for root in roots],
            domains=frozenset(root.domain for root in roots),
        )
        for consumer_uuid, roots in sorted({**others, **hosts}.items())
    ]


def lock(connection: Connection, uuid: str) -> None:
    """Lock a group against other claims into it, PUT and DELETE; raise `UnknownPlacementGroup`."""
    query = select(placement_groups.c.id).where(placement_groups.c.uuid == uuid)
    if connection.scalar(query.with_for_update(**NO_KEY_UPDATE)) is None:
        raise unknown(uuid)


def unknown(uuid: str) -> UnknownPlacementGroup:
    """Return the error for a claim into a group that does not exist."""
    return UnknownPlacementGroup(f"No placement group with uuid {uuid} found: create it with PUT first.")


def domains(connection: Connection, group_id: int, root_ids: Collection[int]) -> dict[int, Domain]:
    """Return the domains of roots in a group, by id."""
    values = {"group_id": group_id, "root_ids": sorted(root_ids)}
    return {row.id: row.domain for row in connection.execute(_ROOTS, values)}


def set_members(connection: Connection, group_id: int, consumer_ids: Collection[int]) -> None:
    """Make consumers members of a locked group, and of no other one. The consumers are locked too."""
    table = placement_group_members.c
    rows = insert_rows([table.consumer_id, table.group_id], [(id_, group_id) for id_ in sorted(consumer_ids)])
    connection.execute(
        rows.on_conflict_do_update(index_elements=[table.consumer_id], set_={"group_id": group_id})
    )


def find_page(connection: Connection, page: PageRequest) -> Page[SizedGroup]:
    """Return a page of the groups with the number of their members."""
    query = select_page(select(placement_groups), Order(placement_groups.c.uuid), page)
    rows = connection.execute(query).all()
    found = to_page(rows, page.limit, [Position(row.uuid) for row in rows])
    table = placement_group_members.c
    counts = (
        select(table.group_id, func.count())
        .where(is_any(table.group_id, [row.id for row in found.elements]))
        .group_by(table.group_id)
    )
    member_counts: dict[int, int] = dict(connection.execute(counts).all())
    groups = _to_groups(connection, found.elements)
    sized = [
        SizedGroup(group, member_counts.get(row.id, 0))
        for row, group in zip(found.elements, groups, strict=True)
    ]
    return Page(sized, found.last, found.has_more)


def put(connection: Connection, group: PlacementGroup) -> tuple[bool, list[GroupMember]]:
    """Create a group, or replace its policy; return whether it was created, and its members."""
    policy = {"policy": group.policy, "max_per_domain": group.max_per_domain}
    created = (
        upsert_into(placement_groups)
        .values(uuid=group.uuid, **policy)
        .on_conflict_do_update(
            index_elements=[placement_groups.c.uuid], set_={**policy, "updated_at": func.now()}
        )
        .returning(placement_groups.c.id, placement_groups.c.updated_at.is_(None))
    )
    group_id, is_new = connection.execute(created).one()
    table = placement_group_aggregates.c
    connection.execute(delete_from(placement_group_aggregates).where(table.group_id == group_id))
    if group.aggregates is not None:
        rows = [(group_id, position, uuid) for position, uuid in enumerate(group.aggregates)]
        connection.execute(insert_rows([table.group_id, table.position, table.aggregate_uuid], rows))
    return is_new, members(connection, group_id)


def delete(connection: Connection, uuid: str) -> None:
    """Delete a group; raise `NotFound`, and `PlacementGroupInUse` if it has members."""
    group_id = connection.scalar(
        select(placement_groups.c.id).where(placement_groups.c.uuid == uuid).with_for_update()
    )
    if group_id is None:
        raise _not_found(uuid)
    if connection.scalar(select(exists().where(placement_group_members.c.group_id == group_id))):
        raise PlacementGroupInUse(f"Placement group {uuid} has members: release or move them first.")
    connection.execute(delete_from(placement_groups).where(placement_groups.c.id == group_id))
