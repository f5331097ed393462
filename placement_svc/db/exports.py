"""Read the database as records for an export (`docs/operations.md`, "Moving data")."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from sqlalchemy import Connection, Row, Table, func, select, text

from placement_svc.db.maintenance import disable_timeouts
from placement_svc.db.tables import (
    FIRST_CUSTOM_ID,
    consumers,
    placement_groups,
    resource_classes,
    resource_providers,
    traits,
)
from placement_svc.domain.allocations import Claim
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.placement_groups import PlacementGroup
from placement_svc.domain.records import (
    PlacementGroupRecord,
    ProviderRecord,
    Record,
    ResourceClassRecord,
    TraitRecord,
)

FETCH_SIZE = 1000
"""Rows fetched from PostgreSQL at a time."""

# Ordered by id, so that an import assigns new ids in the same order. The aggregates of a provider are ordered
# by uuid, because an import assigns their ids in the order of the providers that are in them.
_PROVIDERS = text("""
    SELECT provider.uuid, provider.name, parent.uuid AS parent_uuid,
           ARRAY(SELECT trait.name
                   FROM provider_traits
                   JOIN traits AS trait ON trait.id = trait_id
                  WHERE provider_id = provider.id
                  ORDER BY trait.id) AS traits,
           ARRAY(SELECT aggregate.uuid
                   FROM provider_aggregates
                   JOIN aggregates AS aggregate ON aggregate.id = aggregate_id
                  WHERE provider_id = provider.id
                  ORDER BY aggregate.uuid) AS aggregates,
           (SELECT json_agg(json_build_array(class.name, to_json(record)) ORDER BY class.id)
              FROM inventories
              JOIN resource_classes AS class ON class.id = resource_class_id
             CROSS JOIN LATERAL (SELECT total, reserved, min_unit, max_unit, step_size, allocation_ratio)
                AS record
             WHERE provider_id = provider.id) AS inventories
      FROM resource_providers AS provider
      LEFT JOIN resource_providers AS parent ON parent.id = provider.parent_id
     ORDER BY provider.id
""")

_ALLOCATIONS = text("""
    SELECT consumer.uuid, project.external_id AS project_id, "user".external_id AS user_id,
           type.name AS consumer_type, provider.uuid AS provider_uuid, class.name AS resource_class, used
      FROM allocations
      JOIN consumers AS consumer ON consumer.id = consumer_id
      JOIN projects AS project ON project.id = project_id
      JOIN users AS "user" ON "user".id = user_id
      LEFT JOIN consumer_types AS type ON type.id = consumer_type_id
      JOIN resource_providers AS provider ON provider.id = provider_id
      JOIN resource_classes AS class ON class.id = resource_class_id
     ORDER BY consumer_id, provider_id, resource_class_id
""")


_PLACEMENT_GROUPS = text("""
    SELECT placement_group.uuid, policy, max_per_domain,
           (SELECT array_agg(aggregate_uuid ORDER BY position)
              FROM placement_group_aggregates
             WHERE group_id = placement_group.id) AS aggregates,
           ARRAY(SELECT consumer.uuid
                   FROM placement_group_members AS member
                   JOIN consumers AS consumer ON consumer.id = member.consumer_id
                  WHERE member.group_id = placement_group.id
                  ORDER BY consumer.id) AS members
      FROM placement_groups AS placement_group
     ORDER BY placement_group.id
""")


def count(connection: Connection) -> int:
    """Return the number of providers, consumers and placement groups."""
    tables = (resource_providers, consumers, placement_groups)
    return sum(connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables)


def records(connection: Connection) -> Iterator[Record]:
    """Yield custom traits and resource classes, then all providers, consumers and placement groups.

    Rows are streamed, so memory does not grow with the database. Aggregates without members, and projects,
    users and consumer types without consumers, are omitted.
    """
    disable_timeouts(connection)
    streaming = connection.execution_options(yield_per=FETCH_SIZE)
    yield from map(TraitRecord, _custom_names(connection, traits))
    yield from map(ResourceClassRecord, _custom_names(connection, resource_classes))
    for row in streaming.execute(_PROVIDERS):
        yield ProviderRecord(
            uuid=row.uuid,
            name=row.name,
            parent_uuid=row.parent_uuid,
            traits=row.traits,
            aggregates=row.aggregates,
            inventories={name: _inventory(**fields) for name, fields in row.inventories or ()},
        )
    for _, allocations in groupby(streaming.execute(_ALLOCATIONS), attrgetter("uuid")):
        yield _claim(list(allocations))
    # A group may have many members.
    for row in connection.execution_options(yield_per=1).execute(_PLACEMENT_GROUPS):
        group = PlacementGroup(row.uuid, row.policy, row.max_per_domain, row.aggregates)
        yield PlacementGroupRecord(group, row.members)


def _custom_names(connection: Connection, table: Table) -> Iterable[str]:
    query = select(table.c.name).where(table.c.id >= FIRST_CUSTOM_ID).order_by(table.c.id)
    return connection.scalars(query)


def _inventory(allocation_ratio: float, **amounts: int) -> Inventory:
    # to_json writes 1.0 as 1.
    return Inventory(**amounts, allocation_ratio=float(allocation_ratio))


def _claim(rows: list[Row[tuple[object, ...]]]) -> Claim:
    """Return the claim of one consumer from its rows of `_ALLOCATIONS`."""
    consumer = rows[0]
    allocations: dict[str, dict[str, int]] = {}
    for row in rows:
        allocations.setdefault(row.provider_uuid, {})[row.resource_class] = row.used
    return Claim(
        consumer_uuid=consumer.uuid,
        project_id=consumer.project_id,
        user_id=consumer.user_id,
        consumer_type=consumer.consumer_type,
        generation=None,
        allocations=allocations,
    )
