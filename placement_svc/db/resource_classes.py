"""Resource classes, standard and custom."""

from sqlalchemy import Connection, delete, func, select, update

from placement_svc.db import names
from placement_svc.db.errors import map_constraints
from placement_svc.db.tables import FIRST_CUSTOM_ID, resource_classes
from placement_svc.domain.errors import Conflict, Invalid, NotFound
from placement_svc.domain.resource_classes import ResourceClass

_each = select(
    resource_classes.c.name,
    func.coalesce(resource_classes.c.updated_at, resource_classes.c.created_at).label("modified"),
).order_by(resource_classes.c.id)


def find(connection: Connection) -> list[ResourceClass]:
    """Return all resource classes, standard ones first."""
    return [ResourceClass(**row._mapping) for row in connection.execute(_each)]


def get(connection: Connection, name: str) -> ResourceClass:
    """Return a resource class; raises `NotFound`."""
    row = connection.execute(_each.where(resource_classes.c.name == name)).one_or_none()
    if row is None:
        raise NotFound(f"No such resource class {name}.")
    return ResourceClass(**row._mapping)


def create(connection: Connection, name: str) -> None:
    """Create a custom resource class; raises `Conflict` if there is one of this name."""
    if not ensure(connection, name):
        raise Conflict(f"Conflicting resource class already exists: {name}")


def ensure(connection: Connection, name: str) -> bool:
    """See to it that there is a custom resource class of this name; tell whether it had to be created."""
    return names.add(connection, resource_classes, name)


def rename(connection: Connection, name: str, new_name: str) -> None:
    """Give a custom resource class another name.

    Raises `NotFound`, `Invalid` for a standard class, and `Conflict` for a name that is taken.
    """
    id_ = _custom_id(connection, name, f"Cannot update standard resource class {name}")
    taken = Conflict(f"Resource class already exists: {new_name}")
    with map_constraints(resource_classes_name_key=taken):
        connection.execute(
            update(resource_classes)
            .where(resource_classes.c.id == id_, resource_classes.c.name != new_name)
            .values(name=new_name, updated_at=func.now())
        )


def remove(connection: Connection, name: str) -> None:
    """Delete a custom resource class that nobody has an inventory of.

    Raises `NotFound`, `Invalid` for a standard class, and `Conflict` for one with inventories.
    """
    problem = "Error in delete resource class:"
    id_ = _custom_id(connection, name, f"{problem} Cannot delete standard resource class {name}.")
    in_use = Conflict(f"{problem} Class is in use in inventory.")
    with map_constraints(inventories_resource_class_id_fkey=in_use):
        connection.execute(delete(resource_classes).where(resource_classes.c.id == id_))


def _custom_id(connection: Connection, name: str, if_standard: str) -> int:
    id_ = names.ids(connection, resource_classes, [name]).get(name)
    if id_ is None:
        raise NotFound(f"No such resource class {name}.")
    if id_ < FIRST_CUSTOM_ID:
        raise Invalid(if_standard)
    return id_
