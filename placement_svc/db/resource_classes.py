"""Resource classes, standard and custom."""

from sqlalchemy import Connection, delete, func, select, update

from placement_svc.db import names
from placement_svc.db.errors import map_constraints
from placement_svc.db.tables import FIRST_CUSTOM_ID, resource_classes
from placement_svc.domain.errors import Conflict, Invalid, NotFound
from placement_svc.domain.resource_classes import ResourceClass

_select_classes = select(
    resource_classes.c.name,
    func.coalesce(resource_classes.c.updated_at, resource_classes.c.created_at).label("modified"),
).order_by(resource_classes.c.id)


def find(connection: Connection) -> list[ResourceClass]:
    """Return all resource classes, standard ones first."""
    return [ResourceClass(**row._mapping) for row in connection.execute(_select_classes)]


def get(connection: Connection, name: str) -> ResourceClass:
    """Return a resource class; raise `NotFound`."""
    row = connection.execute(_select_classes.where(resource_classes.c.name == name)).one_or_none()
    if row is None:
        raise NotFound(f"No such resource class {name}.")
    return ResourceClass(**row._mapping)


def create(connection: Connection, name: str) -> None:
    """Create a custom resource class; raise `Conflict` if it exists."""
    if not ensure(connection, name):
        raise Conflict(f"Conflicting resource class already exists: {name}")


def ensure(connection: Connection, name: str) -> bool:
    """Create a custom resource class unless it exists; return whether it was created."""
    return names.add(connection, resource_classes, name)


def rename(connection: Connection, name: str, new_name: str) -> None:
    """Rename a custom resource class.

    Raise `NotFound`, `Invalid` for a standard class, and `Conflict` if another class has the new name.
    """
    class_id = _lock_custom(connection, name, f"Cannot update standard resource class {name}")
    name_taken = Conflict(f"Resource class already exists: {new_name}")
    with map_constraints(resource_classes_name_key=name_taken):
        connection.execute(
            update(resource_classes)
            .where(resource_classes.c.id == class_id, resource_classes.c.name != new_name)
            .values(name=new_name, updated_at=func.now())
        )


def remove(connection: Connection, name: str) -> None:
    """Delete a custom resource class.

    Raise `NotFound`, `Invalid` for a standard class, and `Conflict` for a class with inventories.
    """
    prefix = "Error in delete resource class:"
    class_id = _lock_custom(connection, name, f"{prefix} Cannot delete standard resource class {name}.")
    in_use = Conflict(f"{prefix} Class is in use in inventory.")
    with map_constraints(inventories_resource_class_id_fkey=in_use):
        connection.execute(delete(resource_classes).where(resource_classes.c.id == class_id))


def _lock_custom(connection: Connection, name: str, standard_message: str) -> int:
    """Lock the row of a custom resource class, and return its id.

    Raise `NotFound`, also if another request deletes or renames it first, or `Invalid` for a standard class.
    """
    class_id = names.ids(connection, resource_classes, [name]).get(name)
    if class_id is not None and class_id < FIRST_CUSTOM_ID:
        raise Invalid(standard_message)
    # PostgreSQL compares the name again once it has the lock.
    named = select(resource_classes.c.id).where(
        resource_classes.c.id == class_id, resource_classes.c.name == name
    )
    if class_id is None or connection.scalar(named.with_for_update()) is None:
        raise NotFound(f"No such resource class {name}.")
    return class_id
