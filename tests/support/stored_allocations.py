"""The stored allocations of a database, and the history of usage and of placement groups."""

from sqlalchemy import Engine, text

Allocations = dict[str, dict[str, int]]
"""Amounts by provider uuid and resource class."""

_STORED = text("""
    SELECT consumers.uuid, consumers.generation, resource_providers.uuid, resource_classes.name, used
      FROM consumers
      LEFT JOIN allocations ON consumer_id = consumers.id
      LEFT JOIN resource_providers ON resource_providers.id = provider_id
      LEFT JOIN resource_classes ON resource_classes.id = resource_class_id
""")

_MEMBERS = text("""
    SELECT consumers.uuid, placement_groups.uuid
      FROM placement_group_members AS member
      JOIN consumers ON consumers.id = member.consumer_id
      JOIN placement_groups ON placement_groups.id = member.group_id
""")

# The rows of one inventory are in the order of the commits.
_OVERCOMMITTED = text("""
    SELECT count(*)
      FROM (SELECT used, capacity,
                   lag(used, 1, CAST(0 AS bigint)) OVER (
                       PARTITION BY provider_id, resource_class_id ORDER BY id
                   ) AS before
              FROM usage_history) AS history
     WHERE used > capacity AND used > before
""")

# The deferred trigger runs while the transaction holds the lock of the group: no other one adds members.
RECORD_BROKEN_GROUPS = [
    "CREATE TABLE broken_groups (group_id bigint NOT NULL)",
    """
    CREATE FUNCTION record_broken_group() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        WITH member_domains AS (
            SELECT DISTINCT member.consumer_id, coalesce(rack.uuid, root.uuid) AS domain
              FROM placement_group_members AS member
              JOIN allocations ON allocations.consumer_id = member.consumer_id
              JOIN resource_providers AS provider ON provider.id = allocations.provider_id
              JOIN resource_providers AS root ON root.id = provider.root_id
              LEFT JOIN (SELECT provider_id, uuid
                           FROM provider_aggregates
                           JOIN aggregates ON aggregates.id = aggregate_id
                           JOIN placement_group_aggregates AS listed
                             ON (listed.group_id, listed.aggregate_uuid) = (NEW.group_id, uuid)) AS rack
                ON rack.provider_id = root.id
             WHERE member.group_id = NEW.group_id
        )
        INSERT INTO broken_groups
        SELECT id
          FROM placement_groups
         WHERE id = NEW.group_id
           AND CASE policy
                 WHEN 'affinity' THEN (SELECT count(DISTINCT domain) > 1 FROM member_domains)
                 WHEN 'anti-affinity' THEN EXISTS (
                     SELECT FROM member_domains GROUP BY domain HAVING count(*) > max_per_domain
                 )
               END;
        RETURN NULL;
    END
    $$
    """,
    """
    CREATE CONSTRAINT TRIGGER record_broken_group AFTER INSERT OR UPDATE ON placement_group_members
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record_broken_group()
    """,
]
"""Record each commit of a claim that leaves a group in violation of its hard policy."""


def stored_consumers(engine: Engine) -> dict[str, tuple[int, Allocations]]:
    """Return the stored generation and allocations of each consumer."""
    found: dict[str, tuple[int, Allocations]] = {}
    with engine.connect() as connection:
        for uuid, generation, provider, name, used in connection.execute(_STORED):
            _, amounts = found.setdefault(uuid, (generation, {}))
            amounts.setdefault(provider, {})[name] = used
    return found


def stored_members(engine: Engine) -> dict[str, str]:
    """Return the placement group of each consumer that is in one, both by uuid."""
    with engine.connect() as connection:
        return dict(connection.execute(_MEMBERS).all())


def count_overcommitting_commits(engine: Engine) -> int:
    """Return how many commits left an inventory used beyond its capacity, and more than before.

    The table `usage_history` has the usage at each commit; see `tests/races/conftest.py`.
    """
    with engine.connect() as connection:
        return int(connection.execute(_OVERCOMMITTED).scalar_one())
