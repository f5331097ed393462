"""The shape of provider trees: positions, locks, and moves of subtrees (`docs/spec/resources.md 2`).

Every provider stores its parent, its root and the path of ids from the root to itself.
"""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, case, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer

from placement_svc.db.tables import resource_providers
from placement_svc.domain.errors import Invalid
from placement_svc.domain.inventory import MAX_INTEGER

TREE_SHAPE_LOCK = 8779
"""The advisory lock of the shape of all trees.

Moving a subtree takes it exclusively. Adding or deleting a leaf takes it shared, and so does a transaction
that needs the trees to keep their shape.
"""


@dataclass(frozen=True)
class ProviderPosition:
    """The position of a resource provider in its tree; `path` has the ids from the root to the provider."""

    id: int
    parent_id: int | None
    root_id: int
    path: list[int]


def lock_tree_shape_shared(connection: Connection) -> None:
    """Prevent moves of subtrees until the transaction ends; call this before locking any row.

    A transaction that updates a provider twice needs this lock too. On the second update, PostgreSQL checks
    the foreign key to the parent again, for which it locks the parent's row. A concurrent move may hold
    that row and wait for the provider: a deadlock.
    """
    connection.execute(select(func.pg_advisory_xact_lock_shared(TREE_SHAPE_LOCK)))


def lock_tree_shape(connection: Connection) -> None:
    """Prevent all other changes of the shape of trees until the transaction ends."""
    connection.execute(select(func.pg_advisory_xact_lock(TREE_SHAPE_LOCK)))


def find_position(connection: Connection, uuid: str) -> ProviderPosition | None:
    """Return the position of a provider, or None; it is stable only under a lock of the tree shape."""
    query = select(
        resource_providers.c.id,
        resource_providers.c.parent_id,
        resource_providers.c.root_id,
        resource_providers.c.path,
    ).where(resource_providers.c.uuid == uuid)
    row = connection.execute(query).one_or_none()
    return ProviderPosition(**row._mapping) if row else None


def find_new_parent(
    connection: Connection,
    uuid: str,
    position: ProviderPosition,
    parent_uuid: str | None,
    *,
    may_leave_parent: bool,
) -> ProviderPosition | None:
    """Return the position of the parent that the provider `uuid` at `position` is to get, None for a root.

    Raise `Invalid` if the parent does not exist or is in the provider's own subtree, and, without
    `may_leave_parent`, if the provider has another parent.
    """
    prefix = f"Unable to save resource provider {uuid}:"
    if parent_uuid is None:
        if position.parent_id is not None and not may_leave_parent:
            raise Invalid(f"{prefix} un-parenting a provider is not currently allowed.")
        return None
    parent = find_position(connection, parent_uuid)
    if parent is None:
        raise Invalid(f"{prefix} parent provider UUID does not exist.")
    if position.parent_id not in (None, parent.id) and not may_leave_parent:
        raise Invalid(f"{prefix} re-parenting a provider is not currently allowed.")
    if position.id in parent.path:
        raise Invalid(f"{prefix} creating loop in the provider tree is not allowed.")
    return parent


def in_subtree(position: ProviderPosition) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a provider is the one at `position` or one of its descendants."""
    return (
        resource_providers.c.root_id == position.root_id,
        resource_providers.c.path.contains([position.id]),
    )


def move_subtree(connection: Connection, position: ProviderPosition, parent: ProviderPosition | None) -> None:
    """Move a provider and its descendants below `parent`, or make it a root.

    The subtree and its inventories must be locked. Foreign keys that cascade update the `root_id` of its
    inventories, traits and aggregates.
    """
    parent_path = list(parent.path) if parent else []
    root_id = parent_path[0] if parent_path else position.id
    providers = resource_providers.c
    # The time of a descendant changes only if it gets another root.
    is_updated = or_(providers.id == position.id, providers.root_id != root_id)
    connection.execute(
        update(resource_providers)
        .where(*in_subtree(position))
        .values(
            parent_id=case(
                (providers.id == position.id, parent.id if parent else None), else_=providers.parent_id
            ),
            root_id=root_id,
            path=func.array_cat(
                literal(parent_path, ARRAY(Integer)), providers.path[len(position.path) : MAX_INTEGER]
            ),
            updated_at=case((is_updated, func.now()), else_=providers.updated_at),
        )
    )
