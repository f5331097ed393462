"""Which traits a resource provider has."""

from collections.abc import Collection

from sqlalchemy import Connection, delete, not_
from sqlalchemy.dialects.postgresql import insert

from placement_svc.db import names, providers
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import is_any
from placement_svc.db.tables import provider_traits, traits
from placement_svc.db.traits import each
from placement_svc.domain.errors import Conflict, Invalid
from placement_svc.domain.traits import ProviderTraits, Trait


def get(connection: Connection, provider_uuid: str) -> ProviderTraits:
    """Return the traits of a provider; raises `NotFound`."""
    provider_id, generation = providers.get_id(connection, provider_uuid)
    query = each.join(provider_traits, provider_traits.c.trait_id == traits.c.id).where(
        provider_traits.c.provider_id == provider_id
    )
    return ProviderTraits(generation, [Trait(**row._mapping) for row in connection.execute(query)])


def replace(
    connection: Connection, provider_uuid: str, generation: int, wanted: Collection[str]
) -> ProviderTraits:
    """Give a provider at `generation` exactly these traits; return what it has then.

    Its generation rises only if that changes anything. Raises `NotFound`, `ConcurrentUpdate`, and
    `Invalid` for unknown traits.
    """
    providers.lock_tree_shape_shared(connection)
    provider = providers.lock_at(connection, provider_uuid, generation, providers.GENERATION_CHANGED)
    ids = names.ids(connection, traits, wanted)
    unknown = [name for name in dict.fromkeys(wanted) if name not in ids]
    if unknown:
        raise Invalid(f"No such trait {', '.join(unknown)}")
    gone = connection.execute(
        delete(provider_traits).where(
            provider_traits.c.provider_id == provider.id,
            not_(is_any(provider_traits.c.trait_id, ids.values())),
        )
    )
    come = 0
    if ids:
        rows = [{"provider_id": provider.id, "trait_id": id} for id in ids.values()]
        vanished = Conflict("Race condition detected when setting traits: one was deleted.")
        with map_constraints(provider_traits_trait_id_fkey=vanished):
            come = connection.execute(insert(provider_traits).values(rows).on_conflict_do_nothing()).rowcount
    if gone.rowcount or come:
        providers.increment_generations(connection, [provider.id])
    return get(connection, provider_uuid)


def remove_all(connection: Connection, provider_uuid: str) -> None:
    """Take all traits from a provider, whose generation rises only if it had any; raises `NotFound`."""
    providers.lock_tree_shape_shared(connection)
    provider = providers.lock(connection, provider_uuid)
    of_provider = provider_traits.c.provider_id == provider.id
    if connection.execute(delete(provider_traits).where(of_provider)).rowcount:
        providers.increment_generations(connection, [provider.id])
