"""The traits of a resource provider."""

from collections.abc import Collection

from sqlalchemy import Connection, delete, not_

from placement_svc.db import names, providers
from placement_svc.db.arrays import insert_missing
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import is_any
from placement_svc.db.provider_trees import lock_tree_shape_shared
from placement_svc.db.providers import LockedProvider
from placement_svc.db.tables import provider_traits, traits
from placement_svc.db.traits import select_traits
from placement_svc.domain.errors import Invalid
from placement_svc.domain.traits import ProviderTraits, Trait
from placement_svc.domain.wording import list_names


def get(connection: Connection, provider_uuid: str) -> ProviderTraits:
    """Return the traits of a provider; raise `NotFound`."""
    provider_id, generation = providers.get_id(connection, provider_uuid)
    query = select_traits.join(provider_traits, provider_traits.c.trait_id == traits.c.id).where(
        provider_traits.c.provider_id == provider_id
    )
    return ProviderTraits(generation, [Trait(**row._mapping) for row in connection.execute(query)])


def replace(
    connection: Connection, provider_uuid: str, generation: int, trait_names: Collection[str]
) -> ProviderTraits:
    """Replace the traits of a provider at `generation`, and return them.

    The generation is incremented only if the traits change. Raise `NotFound`, `ConcurrentUpdate`, and
    `Invalid` for unknown traits.
    """
    lock_tree_shape_shared(connection)
    provider = providers.lock_at(connection, provider_uuid, generation, providers.GENERATION_CHANGED)
    return _set(connection, provider, trait_names)


def change(
    connection: Connection,
    provider_uuid: str,
    generation: int | None,
    *,
    add: Collection[str],
    remove: Collection[str],
) -> ProviderTraits:
    """Add traits to a provider at `generation` (None: at any), remove others, and return all its traits.

    The generation is incremented only if the traits change. Raise `NotFound`, `ConcurrentUpdate`, and
    `Invalid` for unknown traits in `add`.
    """
    lock_tree_shape_shared(connection)
    provider = providers.lock_at(connection, provider_uuid, generation, providers.GENERATION_CHANGED)
    removed = frozenset(remove)
    current = (trait.name for trait in get(connection, provider_uuid).traits)
    return _set(connection, provider, [*(name for name in current if name not in removed), *add])


def _set(connection: Connection, provider: LockedProvider, trait_names: Collection[str]) -> ProviderTraits:
    ids = names.ids(connection, traits, trait_names)
    unknown_names = [name for name in dict.fromkeys(trait_names) if name not in ids]
    if unknown_names:
        raise Invalid(f"No such trait {list_names(unknown_names)}")
    deleted = connection.execute(
        delete(provider_traits).where(
            provider_traits.c.provider_id == provider.id,
            not_(is_any(provider_traits.c.trait_id, ids.values())),
        )
    ).rowcount
    inserted = 0
    if ids:
        rows = [(provider.id, id) for id in ids.values()]
        trait_deleted = Invalid("No such trait: one of them was deleted meanwhile.")
        with map_constraints(provider_traits_trait_id_fkey=trait_deleted):
            inserted = insert_missing(
                connection, [provider_traits.c.provider_id, provider_traits.c.trait_id], rows
            )
    if deleted or inserted:
        providers.increment_generations(connection, [provider.id])
    return get(connection, provider.uuid)


def remove_all(connection: Connection, provider_uuid: str) -> None:
    """Delete all traits of a provider; raise `NotFound`.

    The generation is incremented only if the provider has traits.
    """
    lock_tree_shape_shared(connection)
    provider = providers.lock(connection, provider_uuid)
    of_provider = provider_traits.c.provider_id == provider.id
    if connection.execute(delete(provider_traits).where(of_provider)).rowcount:
        providers.increment_generations(connection, [provider.id])
