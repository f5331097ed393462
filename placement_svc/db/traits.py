"""Traits, standard and custom."""

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select

from placement_svc.db import names
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import is_any
from placement_svc.db.tables import provider_traits, traits
from placement_svc.domain.errors import Conflict, Invalid, NotFound
from placement_svc.domain.traits import Trait, TraitFilter

each = select(
    traits.c.name, func.coalesce(traits.c.updated_at, traits.c.created_at).label("modified")
).order_by(traits.c.id)
"""Every trait, as a `Trait`, in the order of ids."""


def find(connection: Connection, wanted: TraitFilter) -> list[Trait]:
    """Return the traits that are wanted, standard ones first."""
    conditions: list[ColumnElement[bool]] = []
    if wanted.names is not None:
        conditions.append(is_any(traits.c.name, wanted.names))
    if wanted.prefix:
        conditions.append(func.starts_with(traits.c.name, wanted.prefix))
    if wanted.associated is not None:
        held = exists().where(provider_traits.c.trait_id == traits.c.id)
        conditions.append(held if wanted.associated else ~held)
    return [Trait(**row._mapping) for row in connection.execute(each.where(*conditions))]


def get(connection: Connection, name: str) -> Trait:
    """Return a trait; raises `NotFound`."""
    row = connection.execute(each.where(traits.c.name == name)).one_or_none()
    if row is None:
        raise NotFound(f"No such trait(s): {name}.")
    return Trait(**row._mapping)


def ensure(connection: Connection, name: str) -> tuple[Trait, bool]:
    """Return the custom trait of this name, and whether it had to be created."""
    created = names.add(connection, traits, name)
    return get(connection, name), created


def remove(connection: Connection, name: str) -> None:
    """Delete a custom trait that no provider holds.

    Raises `NotFound`, `Invalid` for a standard trait, and `Conflict` for one that a provider holds.
    """
    get(connection, name)
    if not name.startswith("CUSTOM_"):
        raise Invalid(f"Cannot delete standard trait {name}.")
    in_use = Conflict(f"The trait {name} is in use by a resource provider.")
    with map_constraints(provider_traits_trait_id_fkey=in_use):
        connection.execute(delete(traits).where(traits.c.name == name))
