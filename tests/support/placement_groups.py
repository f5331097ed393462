"""Members of placement groups, written to the database without a claim."""

from collections.abc import Iterable

from sqlalchemy import Engine, text

_JOIN = text("""
    INSERT INTO placement_group_members (consumer_id, group_id)
    SELECT consumers.id, placement_groups.id
      FROM consumers, placement_groups
     WHERE consumers.uuid = ANY (:consumers) AND placement_groups.uuid = :group
""")


def add_members(engine: Engine, group: str, consumers: Iterable[str]) -> None:
    """Make consumers members of a group; all are uuids."""
    with engine.begin() as connection:
        connection.execute(_JOIN, {"group": group, "consumers": list(consumers)})
