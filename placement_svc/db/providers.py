"""Resource providers."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, not_, select, update

from placement_svc.db import names
from placement_svc.db.aggregates import aggregate_ids
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import (
    MAX_SINGLE_CONDITIONS,
    MAX_SINGLE_SETS,
    fits_all,
    gives_amount,
    has_traits,
    in_any_aggregate,
    in_each_aggregate_set,
    is_any,
)
from placement_svc.db.provider_trees import (
    find_new_parent,
    find_position,
    in_subtree,
    lock_tree_shape,
    lock_tree_shape_shared,
    move_subtree,
)
from placement_svc.db.row_locks import NO_KEY_UPDATE
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.errors import (
    ConcurrentUpdate,
    DuplicateName,
    Invalid,
    NotFound,
    ProviderHasChildren,
    ProviderInUse,
)
from placement_svc.domain.groups import RequestGroup
from placement_svc.domain.providers import Provider, ProviderChange, ProviderFilter

GENERATION_CHANGED = (
    "Resource provider's generation already changed. Please update the generation and try again."
)
"""The error message for an outdated generation in requests about traits and aggregates."""

providers = resource_providers
_parents = shared(resource_providers.alias("parents"))
_roots = shared(resource_providers.alias("roots"))

modified = func.coalesce(providers.c.updated_at, providers.c.created_at)
select_providers = (
    select(
        providers.c.uuid,
        providers.c.name,
        providers.c.generation,
        _parents.c.uuid.label("parent_uuid"),
        _roots.c.uuid.label("root_uuid"),
        modified.label("modified"),
    )
    .outerjoin(_parents, _parents.c.id == providers.c.parent_id)
    .join(_roots, _roots.c.id == providers.c.root_id)
)


@dataclass(frozen=True)
class LockedProvider:
    """A resource provider whose row this transaction has locked."""

    id: int
    root_id: int
    uuid: str
    generation: int


def get(connection: Connection, uuid: str) -> Provider:
    """Return a resource provider; raise `NotFound`."""
    row = connection.execute(select_providers.where(providers.c.uuid == uuid)).one_or_none()
    if row is None:
        raise _not_found(uuid)
    return Provider(**row._mapping)


def _not_found(uuid: str) -> NotFound:
    return NotFound(f"No resource provider with uuid {uuid} found")


def get_id(connection: Connection, uuid: str) -> tuple[int, int]:
    """Return the id and the generation of a resource provider; raise `NotFound`."""
    query = select(providers.c.id, providers.c.generation).where(providers.c.uuid == uuid)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise _not_found(uuid)
    return row.id, row.generation


def lock(connection: Connection, uuid: str) -> LockedProvider:
    """Lock the row of a resource provider against all other writers; raise `NotFound`."""
    provider = lock_all(connection, [uuid]).get(uuid)
    if provider is None:
        raise _not_found(uuid)
    return provider


def lock_all(connection: Connection, uuids: Iterable[str]) -> dict[str, LockedProvider]:
    """Lock the rows of resource providers in the order of their ids; return those that exist, by uuid."""
    query = (
        select(providers.c.id, providers.c.root_id, providers.c.uuid, providers.c.generation)
        .where(is_any(providers.c.uuid, uuids))
        .order_by(providers.c.id)
        .with_for_update(**NO_KEY_UPDATE)
    )
    return {row.uuid: LockedProvider(**row._mapping) for row in connection.execute(query)}


def lock_at(connection: Connection, uuid: str, generation: int | None, message: str) -> LockedProvider:
    """Lock the row of a resource provider that must be at `generation` (None: at any).

    Raise `NotFound`, and `ConcurrentUpdate` with `message` for another generation.
    """
    provider = lock(connection, uuid)
    if generation not in (None, provider.generation):
        raise ConcurrentUpdate(message)
    return provider


def increment_generations(connection: Connection, ids: Iterable[int], by: int = 1) -> None:
    """Increment the generations of locked resource providers, and mark them as changed now."""
    connection.execute(
        update(providers)
        .where(is_any(providers.c.id, ids))
        .values(generation=providers.c.generation + by, updated_at=func.now())
    )


def increment_generation(connection: Connection, provider: LockedProvider) -> int:
    """Increment the generation of one locked resource provider; return the new generation."""
    increment_generations(connection, [provider.id])
    return provider.generation + 1


def create(connection: Connection, uuid: str, name: str, parent_uuid: str | None = None) -> Provider:
    """Create a resource provider, as a root or below `parent_uuid`, and return it.

    Raise `Invalid` for a parent that does not exist or is the provider itself, and `DuplicateName` if
    another provider has the name or uuid.
    """
    prefix = f'Unable to create resource provider "{name}", {uuid}:'
    if parent_uuid == uuid:
        raise Invalid(
            f"{prefix} parent provider UUID cannot be same as UUID. A provider cannot be its own parent."
        )
    no_parent = Invalid(f"{prefix} parent provider UUID does not exist.")
    new_id = connection.scalar(select(func.nextval("resource_providers_id_seq")))
    assert new_id is not None
    parent_id, root_id, path = None, new_id, [new_id]
    if parent_uuid is not None:
        lock_tree_shape_shared(connection)
        parent = find_position(connection, parent_uuid)
        if parent is None:
            raise no_parent
        parent_id, root_id, path = parent.id, parent.root_id, [*parent.path, new_id]
    duplicate = "Conflicting resource provider {} already exists."
    with map_constraints(
        resource_providers_parent_fkey=no_parent,
        resource_providers_name_key=DuplicateName(duplicate.format(f"name: {name}")),
        resource_providers_uuid_key=DuplicateName(duplicate.format(f"uuid: {uuid}")),
    ):
        connection.execute(
            insert(providers).values(
                id=new_id,
                uuid=uuid,
                name=name,
                parent_id=parent_id,
                root_id=root_id,
                path=path,
                # The API reports a new root as changed, but a new child as never changed.
                updated_at=func.now() if parent_id is None else None,
            )
        )
    return get(connection, uuid)


def rename(connection: Connection, uuid: str, name: str) -> ProviderChange:
    """Rename a resource provider; raise `NotFound` and `DuplicateName`."""
    query = select(providers.c.id, providers.c.updated_at).where(providers.c.uuid == uuid).with_for_update()
    locked = connection.execute(query).one_or_none()
    if locked is None:
        raise _not_found(uuid)
    with map_constraints(
        resource_providers_name_key=DuplicateName(f"Conflicting resource provider {name} already exists.")
    ):
        connection.execute(
            update(providers)
            .where(providers.c.id == locked.id, providers.c.name != name)
            .values(name=name, updated_at=func.now())
        )
    return ProviderChange(get(connection, uuid), locked.updated_at)


def change(
    connection: Connection, uuid: str, name: str, parent_uuid: str | None, *, may_leave_parent: bool
) -> ProviderChange:
    """Give a resource provider a name and a parent (None makes it a root); its descendants move with it.

    Only with `may_leave_parent` can a provider that has a parent get another one or become a root.
    Raise `NotFound`, `DuplicateName`, and `Invalid` for a parent that is not possible.
    """
    lock_tree_shape(connection)
    position = find_position(connection, uuid)
    if position is None:
        raise _not_found(uuid)
    parent = find_new_parent(connection, uuid, position, parent_uuid, may_leave_parent=may_leave_parent)
    moves = position.parent_id != (parent.id if parent else None)
    if moves:
        _lock_with_inventories(connection, *in_subtree(position))
    renamed = rename(connection, uuid, name)
    if moves:
        move_subtree(connection, position, parent)
    return ProviderChange(get(connection, uuid), renamed.changed_before)


def _lock_with_inventories(connection: Connection, *conditions: ColumnElement[bool]) -> None:
    """Lock providers and then their inventories, each in the order of their keys.

    Needed before a statement whose foreign keys cascade to the inventories in no fixed order.
    """
    locked = select(providers.c.id).where(*conditions).order_by(providers.c.id).with_for_update()
    lock_inventories(connection, connection.scalars(locked).all())


def lock_inventories(connection: Connection, provider_ids: Iterable[int]) -> None:
    """Lock all inventories of locked providers, in the one order in which every transaction locks them."""
    connection.execute(
        select(inventories.c.provider_id)
        .where(is_any(inventories.c.provider_id, provider_ids))
        .order_by(inventories.c.provider_id, inventories.c.resource_class_id)
        .with_for_update()
    )


def remove(connection: Connection, uuid: str) -> None:
    """Delete a resource provider with its inventories, traits and aggregate memberships.

    Raise `NotFound`, `ProviderHasChildren` and `ProviderInUse`.
    """
    lock_tree_shape_shared(connection)
    _lock_with_inventories(connection, providers.c.uuid == uuid)
    with map_constraints(
        resource_providers_parent_fkey=ProviderHasChildren(
            f"Unable to delete parent resource provider {uuid}: It has child resource providers."
        ),
        allocations_provider_id_resource_class_id_fkey=ProviderInUse(
            f"Unable to delete resource provider {uuid}: Resource provider has allocations."
        ),
    ):
        deleted = connection.execute(delete(providers).where(providers.c.uuid == uuid))
    if not deleted.rowcount:
        raise NotFound(f"No resource provider with uuid {uuid} found for delete")


def find(connection: Connection, provider_filter: ProviderFilter) -> list[Provider]:
    """Return the resource providers that match all filters, oldest first.

    Raises the error of `filter_conditions`.
    """
    conditions = filter_conditions(connection, provider_filter)
    if conditions is None:
        return []
    rows = connection.execute(select_providers.where(*conditions).order_by(providers.c.id))
    return [Provider(**row._mapping) for row in rows]


def filter_conditions(
    connection: Connection, provider_filter: ProviderFilter
) -> list[ColumnElement[bool]] | None:
    """Return the conditions on a row of `resource_providers` that matches all filters; None: no row does.

    Raises `Invalid` for an unknown name of a trait or resource class, unless one of the filters before it
    matches no provider by itself (`docs/spec/resources.md 3.1`, short-circuits).
    """
    conditions: list[ColumnElement[bool]] = []
    conditions_by_filter: dict[str, list[ColumnElement[bool]]] = {}
    try:
        for condition, filter_name in _group_conditions(connection, provider_filter.group):
            conditions.append(condition)
            if filter_name:
                conditions_by_filter.setdefault(filter_name, []).append(condition)
    except Invalid:
        first_matches = (
            select(providers.c.id).where(*group).limit(1) for group in conditions_by_filter.values()
        )
        if not all(connection.scalar(query) for query in first_matches):
            return None
        raise
    if provider_filter.name is not None:
        conditions.append(providers.c.name == provider_filter.name)
    if provider_filter.name_part:
        conditions.append(func.strpos(providers.c.name, provider_filter.name_part) > 0)
    if provider_filter.uuids is not None:
        conditions.append(is_any(providers.c.uuid, provider_filter.uuids))
    return conditions


def _group_conditions(
    connection: Connection, group: RequestGroup
) -> Iterable[tuple[ColumnElement[bool], str]]:
    """Yield the conditions under which a provider satisfies `group` alone, in the order of validation.

    Each comes with the name of the filter that requires something, or with an empty name if it forbids
    something. Every field of `RequestGroup` must have its conditions here; a test compares the two.
    """
    if group.in_tree is not None:
        named = providers.alias()
        root_id = select(named.c.root_id).where(named.c.uuid == group.in_tree).scalar_subquery()
        yield providers.c.root_id == root_id, "in_tree"
    if group.not_in_tree:
        named = providers.alias()
        root_ids = select(named.c.root_id).where(is_any(named.c.uuid, group.not_in_tree))
        yield providers.c.root_id.not_in(root_ids), ""
    message = 'Invalid trait(s) in "required" parameter: No such trait(s): {}.'
    required = group.required.any_of
    ids = names.trait_ids(connection, [name for any_of in required for name in sorted(any_of)], message)
    for condition in has_traits(providers, [[ids[name] for name in any_of] for any_of in required]):
        yield condition, "required"
    ids = names.trait_ids(connection, sorted(group.required.forbidden), message)
    for condition in has_traits(providers, (), ids.values()):
        yield condition, ""
    aggregates = aggregate_ids(connection, group.member_of.names) if group.member_of else {}
    sets = [{aggregates[uuid] for uuid in any_of & aggregates.keys()} for any_of in group.member_of.any_of]
    if sets:
        yield in_each_aggregate_set(providers.c.id, sets), "member_of"
    if group.member_of.forbidden:
        forbidden = group.member_of.forbidden & aggregates.keys()
        yield not_(in_any_aggregate(providers.c.id, {aggregates[uuid] for uuid in forbidden})), ""
    message = "Invalid resource class in resources parameter: No such resource class {}."
    class_ids = names.resource_class_ids(connection, list(group.resources), message)
    resources = [(class_ids[name], amount) for name, amount in group.resources.items()]
    # Aggregates and resource classes become joins. Planning 15 joins took PostgreSQL 220 MB.
    joined_count = MAX_SINGLE_CONDITIONS - min(len(sets), MAX_SINGLE_SETS)
    for class_id, amount in resources[:joined_count]:
        inventory = inventories.alias()
        fitting = gives_amount(inventory, class_id, amount)
        yield exists().where(inventory.c.provider_id == providers.c.id, fitting), "resources"
    if len(resources) > joined_count:
        yield fits_all(providers.c.id, resources[joined_count:]), "resources"
