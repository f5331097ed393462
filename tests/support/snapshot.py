"""The data of a database without ids, times, generations and unused names, to compare databases."""

from typing import Any

from sqlalchemy import Engine, text

_QUERIES = {
    "names": """
        SELECT name FROM traits UNION ALL SELECT name FROM resource_classes
    """,
    "providers": """
        SELECT provider.uuid, provider.name, parent.uuid, root.uuid,
               ARRAY(SELECT ancestor_provider.uuid
                       FROM unnest(provider.path) WITH ORDINALITY AS ancestor (id, depth)
                       JOIN resource_providers AS ancestor_provider USING (id)
                      ORDER BY depth) AS path,
               ARRAY(SELECT name
                       FROM unnest(provider.trait_ids) AS trait_id
                       JOIN traits ON traits.id = trait_id
                      ORDER BY name) AS traits
          FROM resource_providers AS provider
          LEFT JOIN resource_providers AS parent ON parent.id = provider.parent_id
          JOIN resource_providers AS root ON root.id = provider.root_id
    """,
    "provider_traits": """
        SELECT uuid, traits.name
          FROM provider_traits
          JOIN resource_providers AS provider ON provider.id = provider_id
          JOIN traits ON traits.id = trait_id
    """,
    "provider_aggregates": """
        SELECT provider.uuid, root.uuid AS root, aggregates.uuid AS aggregate
          FROM provider_aggregates AS member
          JOIN resource_providers AS provider ON provider.id = provider_id
          JOIN resource_providers AS root ON root.id = member.root_id
          JOIN aggregates ON aggregates.id = aggregate_id
    """,
    "inventories": """
        SELECT provider.uuid, root.uuid AS root, class.name, total, reserved, min_unit, max_unit, step_size,
               allocation_ratio, used, capacity, max_allocatable
          FROM inventories AS inventory
          JOIN resource_providers AS provider ON provider.id = provider_id
          JOIN resource_providers AS root ON root.id = inventory.root_id
          JOIN resource_classes AS class ON class.id = resource_class_id
    """,
    "consumers": """
        SELECT consumer.uuid, projects.external_id, users.external_id AS user, consumer_types.name
          FROM consumers AS consumer
          JOIN projects ON projects.id = project_id
          JOIN users ON users.id = user_id
          LEFT JOIN consumer_types ON consumer_types.id = consumer_type_id
    """,
    "allocations": """
        SELECT consumer.uuid, provider.uuid AS provider, class.name, used
          FROM allocations
          JOIN consumers AS consumer ON consumer.id = consumer_id
          JOIN resource_providers AS provider ON provider.id = provider_id
          JOIN resource_classes AS class ON class.id = resource_class_id
    """,
    "placement_groups": """
        SELECT uuid, policy, max_per_domain,
               ARRAY(SELECT aggregate_uuid
                       FROM placement_group_aggregates
                      WHERE group_id = id
                      ORDER BY position) AS aggregates
          FROM placement_groups
    """,
    "placement_group_members": """
        SELECT placement_group.uuid, consumer.uuid AS consumer
          FROM placement_group_members
          JOIN placement_groups AS placement_group ON placement_group.id = group_id
          JOIN consumers AS consumer ON consumer.id = consumer_id
    """,
}


def snapshot(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each kind of data, with the uuids and names that the API shows."""
    with engine.connect() as connection:
        return {
            kind: sorted((tuple(row) for row in connection.execute(text(query))), key=repr)
            for kind, query in _QUERIES.items()
        }
