"""Usages: how much is allocated from a provider, and how much by a project."""

from collections import defaultdict

from sqlalchemy import Connection, Double, cast, func, select, text

from placement_svc.db import providers
from placement_svc.db.tables import inventories, resource_classes
from placement_svc.domain.allocations import UNKNOWN_TYPE, Usages
from placement_svc.domain.inventory import Totals

ALL_TYPES = "all"
"""The value of `consumer_type` that sums over all consumer types; no consumer type has this name."""

# The cost is proportional to the allocations of the project. It uses the index on consumers (project_id)
# and the primary key of allocations. A row without a resource class has the consumer count of a type.
_OF_PROJECT = text("""
    WITH project_allocations AS (
        SELECT consumer.id AS consumer_id,
               CASE WHEN :consumer_type = :all_types THEN :all_types
                    ELSE coalesce(consumer_type.name, :unknown_type)
               END AS consumer_type,
               class.name AS resource_class,
               allocation.used
          FROM projects AS project
          JOIN consumers AS consumer ON consumer.project_id = project.id
          JOIN users AS owner ON owner.id = consumer.user_id
          LEFT JOIN consumer_types AS consumer_type ON consumer_type.id = consumer.consumer_type_id
          JOIN allocations AS allocation ON allocation.consumer_id = consumer.id
          JOIN resource_classes AS class ON class.id = allocation.resource_class_id
         WHERE project.external_id = :project_id
           AND owner.external_id = coalesce(:user_id, owner.external_id)
    )
    SELECT consumer_type, resource_class, sum(used) AS used, count(DISTINCT consumer_id) AS consumer_count
      FROM project_allocations
     WHERE consumer_type = coalesce(:consumer_type, consumer_type)
     GROUP BY GROUPING SETS ((consumer_type, resource_class), (consumer_type))
""")


def of_provider(connection: Connection, uuid: str) -> tuple[int, dict[str, int]]:
    """Return the generation of a provider and its used amounts by resource class; raise `NotFound`."""
    provider_id, generation = providers.get_id(connection, uuid)
    query = (
        select(resource_classes.c.name, inventories.c.used)
        .join_from(inventories, resource_classes)
        .where(inventories.c.provider_id == provider_id)
        .order_by(resource_classes.c.id)
    )
    return generation, dict(connection.execute(query).all())


def of_project(
    connection: Connection, project_id: str, user_id: str | None = None, consumer_type: str | None = None
) -> dict[str, Usages]:
    """Return the usages of a project, or of one user in it, by consumer type.

    `consumer_type` selects one type; `ALL_TYPES` sums over all types (`docs/spec/allocations.md 10`).
    """
    rows = connection.execute(
        _OF_PROJECT,
        {
            "project_id": project_id,
            "user_id": user_id,
            "consumer_type": consumer_type,
            "all_types": ALL_TYPES,
            "unknown_type": UNKNOWN_TYPE,
        },
    ).all()
    counts: dict[str, int] = {}
    resources: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row.resource_class is None:
            counts[row.consumer_type] = row.consumer_count
        else:
            resources[row.consumer_type][row.resource_class] = row.used
    return {name: Usages(consumer_count=count, resources=resources[name]) for name, count in counts.items()}


def totals(connection: Connection) -> dict[str, Totals]:
    """Return sums over the inventories of each resource class; this reads every inventory."""
    inventory = inventories.c
    amounts = {"capacity": inventory.capacity, "used": inventory.used, "reserved": inventory.reserved}
    query = (
        select(resource_classes.c.name, *(cast(func.sum(c), Double).label(n) for n, c in amounts.items()))
        .join_from(inventories, resource_classes)
        .group_by(resource_classes.c.id)
    )
    return {name: Totals(*sums) for name, *sums in connection.execute(query)}
