"""Usages: how much is allocated, of a provider and by a project."""

from sqlalchemy import Connection, Double, cast, func, select, text

from placement_svc.db import providers
from placement_svc.db.tables import inventories, resource_classes
from placement_svc.domain.allocations import UNKNOWN_TYPE, Usages
from placement_svc.domain.inventory import Totals

ALL_TYPES = "all"
"""What stands for consumers of every type together; no type has this name."""

# Proportional to the allocations of the project, by the index on its consumers and the primary key
# of allocations. A row without a class counts the consumers of a type.
_OF_PROJECT = text("""
    WITH held AS (
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
      FROM held
     WHERE consumer_type = coalesce(:consumer_type, consumer_type)
     GROUP BY GROUPING SETS ((consumer_type, resource_class), (consumer_type))
""")


def of_provider(connection: Connection, uuid: str) -> tuple[int, dict[str, int]]:
    """Return the generation of a provider, and what is used of each class it has; raises `NotFound`."""
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
    """Return what the consumers of a project, and of one user in it, hold by consumer type.

    `consumer_type` picks one type; `ALL_TYPES` is all of them as one (`docs/spec/allocations.md 10`).
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
    return {
        total.consumer_type: Usages(
            consumer_count=total.consumer_count,
            resources={
                row.resource_class: row.used
                for row in rows
                if row.consumer_type == total.consumer_type and row.resource_class is not None
            },
        )
        for total in rows
        if total.resource_class is None
    }


def totals(connection: Connection) -> dict[str, Totals]:
    """Return what all inventories of each resource class come to; it reads every inventory."""
    inventory = inventories.c
    amounts = {"capacity": inventory.capacity, "used": inventory.used, "reserved": inventory.reserved}
    query = (
        select(resource_classes.c.name, *(cast(func.sum(c), Double).label(n) for n, c in amounts.items()))
        .join_from(inventories, resource_classes)
        .group_by(resource_classes.c.id)
    )
    return {name: Totals(*sums) for name, *sums in connection.execute(query)}
