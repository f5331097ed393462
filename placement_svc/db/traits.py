"""Traits, standard and custom."""

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select

from placement_svc.db import names
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import is_any
from placement_svc.db.tables import provider_traits, traits
from placement_svc.domain.errors import Conflict, Invalid, NotFound
from placement_svc.domain.traits import Trait, TraitFilter

select_traits = select(
    traits.c.name, func.coalesce(traits.c.updated_at, traits.c.created_at).label("modified")
).order_by(traits.c.id)
"""All traits, with the columns of `Trait`, in the order of their ids."""


def find(connection: Connection, trait_filter: TraitFilter) -> list[Trait]:
    """Return the traits that match a filter, standard ones first."""
    conditions: list[ColumnElement[bool]] = []
    if trait_filter.names is not None:
        conditions.append(is_any(traits.c.name, trait_filter.names))
    if trait_filter.prefix:
        conditions.append(func.starts_with(traits.c.name, trait_filter.prefix))
    if trait_filter.associated is not None:
        has_provider = exists().where(provider_traits.c.trait_id == traits.c.id)
        conditions.append(has_provider if trait_filter.associated else ~has_provider)
    return [Trait(**row._mapping) for row in connection.execute(select_traits.where(*conditions))]


def get(connection: Connection, name: str) -> Trait:
    """Return a trait; raise `NotFound`."""
    trait = _find_one(connection, name)
    if trait is None:
        raise _unknown(name)
    return trait


def ensure(connection: Connection, name: str) -> tuple[Trait, bool]:
    """Create a custom trait unless it exists; return the trait and whether it was created."""
    # Repeat if another request has deleted the trait meanwhile.
    while True:
        created = names.add(connection, traits, name)
        trait = _find_one(connection, name)
        if trait is not None:
            return trait, created


def remove(connection: Connection, name: str) -> None:
    """Delete a custom trait.

    Raise `NotFound`, `Invalid` for a standard trait, and `Conflict` for a trait that a provider has.
    """
    get(connection, name)
    if not name.startswith("CUSTOM_"):
        raise Invalid(f"Cannot delete standard trait {name}.")
    in_use = Conflict(f"The trait {name} is in use by a resource provider.")
    with map_constraints(provider_traits_trait_id_fkey=in_use):
        deleted = connection.execute(delete(traits).where(traits.c.name == name))
    if not deleted.rowcount:
        # Another request has deleted it since it was read.
        raise _unknown(name)


def _find_one(connection: Connection, name: str) -> Trait | None:
    row = connection.execute(select_traits.where(traits.c.name == name)).one_or_none()
    return None if row is None else Trait(**row._mapping)


def _unknown(name: str) -> NotFound:
    return NotFound(f"No such trait(s): {name}.")
