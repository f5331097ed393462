"""Resource providers and their trees."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    not_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer

from placement_svc.db import names
from placement_svc.db.aggregates import aggregate_ids
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import fits, has_traits, in_any_aggregate, is_any
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
from placement_svc.domain.inventory import MAX_INTEGER
from placement_svc.domain.providers import Provider, ProviderChange, ProviderFilter

TREES_LOCK = 8779
"""The advisory lock of the shape of trees: shared to keep it, or to add or delete a leaf, exclusive to move a
branch.
"""

GENERATION_CHANGED = (
    "Resource provider's generation already changed. Please update the generation and try again."
)
"""The problem with an outdated generation, where traits and aggregates are concerned."""

providers = resource_providers
_parents = resource_providers.alias("parents")
_roots = resource_providers.alias("roots")

_modified = func.coalesce(providers.c.updated_at, providers.c.created_at)
_all = (
    select(
        providers.c.uuid,
        providers.c.name,
        providers.c.generation,
        _parents.c.uuid.label("parent_uuid"),
        _roots.c.uuid.label("root_uuid"),
        _modified.label("modified"),
    )
    .outerjoin(_parents, _parents.c.id == providers.c.parent_id)
    .join(_roots, _roots.c.id == providers.c.root_id)
)


@dataclass(frozen=True)
class LockedProvider:
    """A resource provider that nobody else changes until the transaction ends."""

    id: int
    root_id: int
    uuid: str
    generation: int


@dataclass(frozen=True)
class Place:
    """Where a resource provider stands in its tree; `path` leads from the root to itself."""

    id: int
    parent_id: int | None
    root_id: int
    path: list[int]


def get(connection: Connection, uuid: str) -> Provider:
    """Return a resource provider; raises `NotFound`."""
    row = connection.execute(_all.where(providers.c.uuid == uuid)).one_or_none()
    if row is None:
        raise _not_found(uuid)
    return Provider(**row._mapping)


def _not_found(uuid: str) -> NotFound:
    return NotFound(f"No resource provider with uuid {uuid} found")


def get_id(connection: Connection, uuid: str) -> tuple[int, int]:
    """Return the id and the generation of a resource provider; raises `NotFound`."""
    query = select(providers.c.id, providers.c.generation).where(providers.c.uuid == uuid)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise _not_found(uuid)
    return row.id, row.generation


def lock_tree_shape_shared(connection: Connection) -> None:
    """Let no branch move until the transaction ends; to be called before any row is locked.

    Who changes a provider twice needs this as well: for the second time PostgreSQL checks the key of its
    parent, and for that it locks the parent, which a move may hold that waits for the provider.
    """
    connection.execute(select(func.pg_advisory_xact_lock_shared(TREES_LOCK)))


def lock(connection: Connection, uuid: str) -> LockedProvider:
    """Lock a resource provider against all other writers; raises `NotFound`."""
    provider = lock_all(connection, [uuid]).get(uuid)
    if provider is None:
        raise _not_found(uuid)
    return provider


def lock_all(connection: Connection, uuids: Iterable[str]) -> dict[str, LockedProvider]:
    """Lock resource providers in the order of their ids, and return those that exist by uuid."""
    query = (
        select(providers.c.id, providers.c.root_id, providers.c.uuid, providers.c.generation)
        .where(is_any(providers.c.uuid, uuids))
        .order_by(providers.c.id)
        .with_for_update(key_share=True)
    )
    return {row.uuid: LockedProvider(**row._mapping) for row in connection.execute(query)}


def lock_at(connection: Connection, uuid: str, generation: int, problem: str) -> LockedProvider:
    """Lock a resource provider that is still at `generation`; raises `ConcurrentUpdate` if it is not.

    `problem` is what that error says.
    """
    provider = lock(connection, uuid)
    if provider.generation != generation:
        raise ConcurrentUpdate(problem)
    return provider


def increment_generations(connection: Connection, ids: Iterable[int], by: int = 1) -> None:
    """Raise the generation of locked resource providers: something of theirs has changed."""
    connection.execute(
        update(providers)
        .where(is_any(providers.c.id, ids))
        .values(generation=providers.c.generation + by, updated_at=func.now())
    )


def increment_generation(connection: Connection, provider: LockedProvider) -> int:
    """Raise the generation of one locked resource provider and return it."""
    increment_generations(connection, [provider.id])
    return provider.generation + 1


def create(connection: Connection, uuid: str, name: str, parent_uuid: str | None = None) -> Provider:
    """Create a resource provider, as a root or below `parent_uuid`, and return it.

    Raises `Invalid` for a parent that cannot be and `DuplicateName` for a name or uuid that is taken.
    """
    problem = f'Unable to create resource provider "{name}", {uuid}:'
    if parent_uuid == uuid:
        raise Invalid(
            f"{problem} parent provider UUID cannot be same as UUID. A provider cannot be its own parent."
        )
    no_parent = Invalid(f"{problem} parent provider UUID does not exist.")
    id_ = connection.scalar(select(func.nextval("resource_providers_id_seq")))
    assert id_ is not None
    parent_id, root_id, path = None, id_, [id_]
    if parent_uuid is not None:
        lock_tree_shape_shared(connection)
        parent = _place_of(connection, parent_uuid)
        if parent is None:
            raise no_parent
        parent_id, root_id, path = parent.id, parent.root_id, [*parent.path, id_]
    taken = "Conflicting resource provider {} already exists."
    with map_constraints(
        resource_providers_parent_fkey=no_parent,
        resource_providers_name_key=DuplicateName(taken.format(f"name: {name}")),
        resource_providers_uuid_key=DuplicateName(taken.format(f"uuid: {uuid}")),
    ):
        connection.execute(
            insert(providers).values(
                id=id_,
                uuid=uuid,
                name=name,
                parent_id=parent_id,
                root_id=root_id,
                path=path,
                # A root counts as changed from the start: only a child can be told to be untouched.
                updated_at=func.now() if parent_id is None else None,
            )
        )
    return get(connection, uuid)


def _place_of(connection: Connection, uuid: str) -> Place | None:
    """Return where a provider stands, which changes only under the exclusive lock of the trees."""
    query = select(providers.c.id, providers.c.parent_id, providers.c.root_id, providers.c.path).where(
        providers.c.uuid == uuid
    )
    row = connection.execute(query).one_or_none()
    return Place(**row._mapping) if row else None


def rename(connection: Connection, uuid: str, name: str) -> ProviderChange:
    """Give a resource provider another name; raises `NotFound` and `DuplicateName`."""
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
    connection: Connection, uuid: str, name: str, parent_uuid: str | None, may_leave_parent: bool
) -> ProviderChange:
    """Give a resource provider a name and a parent (None makes it a root).

    Only with `may_leave_parent` can one that has a parent get another or none. All below it comes
    along. Raises `NotFound`, `DuplicateName`, and `Invalid` for a parent that cannot be.
    """
    connection.execute(select(func.pg_advisory_xact_lock(TREES_LOCK)))
    place = _place_of(connection, uuid)
    if place is None:
        raise _not_found(uuid)
    parent = _checked_parent(connection, uuid, place, parent_uuid, may_leave_parent)
    moves = place.parent_id != (parent.id if parent else None)
    if moves:
        _lock_whole(connection, *_branch(place))
    changed = rename(connection, uuid, name)
    if moves:
        _move(connection, place, parent)
    return ProviderChange(get(connection, uuid), changed.changed_before)


def _checked_parent(
    connection: Connection, uuid: str, place: Place, parent_uuid: str | None, may_leave_parent: bool
) -> Place | None:
    problem = f"Unable to save resource provider {uuid}:"
    if parent_uuid is None:
        if place.parent_id is not None and not may_leave_parent:
            raise Invalid(f"{problem} un-parenting a provider is not currently allowed.")
        return None
    parent = _place_of(connection, parent_uuid)
    if parent is None:
        raise Invalid(f"{problem} parent provider UUID does not exist.")
    if place.parent_id not in (None, parent.id) and not may_leave_parent:
        raise Invalid(f"{problem} re-parenting a provider is not currently allowed.")
    if place.id in parent.path:
        raise Invalid(f"{problem} creating loop in the provider tree is not allowed.")
    return parent


def _branch(place: Place) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a provider is the one that stands there, or below it."""
    return providers.c.root_id == place.root_id, providers.c.path.contains([place.id])


def _lock_whole(connection: Connection, *which: ColumnElement[bool]) -> None:
    """Lock providers, then their inventories, each in the order of their keys: both change or go by key."""
    locked = select(providers.c.id).where(*which).order_by(providers.c.id).with_for_update()
    ids = connection.scalars(locked).all()
    connection.execute(
        select(inventories.c.provider_id)
        .where(is_any(inventories.c.provider_id, ids))
        .order_by(inventories.c.provider_id, inventories.c.resource_class_id)
        .with_for_update()
    )


def _move(connection: Connection, place: Place, parent: Place | None) -> None:
    """Hang a locked provider and all below it under `parent`; inventories and aggregates follow by key."""
    above = list(parent.path) if parent else []
    connection.execute(
        update(providers)
        .where(*_branch(place))
        .values(
            parent_id=case(
                (providers.c.id == place.id, parent.id if parent else None), else_=providers.c.parent_id
            ),
            root_id=above[0] if above else place.id,
            path=func.array_cat(
                literal(above, ARRAY(Integer)), providers.c.path[len(place.path) : MAX_INTEGER]
            ),
            updated_at=func.now(),
        )
    )


def remove(connection: Connection, uuid: str) -> None:
    """Delete a resource provider with its inventories, and its hold on traits and aggregates.

    Raises `NotFound`, `ProviderHasChildren` and `ProviderInUse`.
    """
    lock_tree_shape_shared(connection)
    _lock_whole(connection, providers.c.uuid == uuid)
    with map_constraints(
        resource_providers_parent_fkey=ProviderHasChildren(
            f"Unable to delete parent resource provider {uuid}: It has child resource providers."
        ),
        allocations_provider_id_resource_class_id_fkey=ProviderInUse(
            f"Unable to delete resource provider {uuid}: Resource provider has allocations."
        ),
    ):
        gone = connection.execute(delete(providers).where(providers.c.uuid == uuid))
    if not gone.rowcount:
        raise NotFound(f"No resource provider with uuid {uuid} found for delete")


def find(connection: Connection, provider_filter: ProviderFilter) -> list[Provider]:
    """Return the resource providers that match all filters, oldest first.

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
            return []
        raise
    if provider_filter.name is not None:
        conditions.append(providers.c.name == provider_filter.name)
    if provider_filter.uuid is not None:
        conditions.append(providers.c.uuid == provider_filter.uuid)
    rows = connection.execute(_all.where(*conditions).order_by(providers.c.id))
    return [Provider(**row._mapping) for row in rows]


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
    problem = 'Invalid trait(s) in "required" parameter: No such trait(s): {}.'
    required = group.required.any_of
    ids = names.trait_ids(connection, [name for any_of in required for name in sorted(any_of)], problem)
    for condition in has_traits(providers, [[ids[name] for name in any_of] for any_of in required]):
        yield condition, "required"
    ids = names.trait_ids(connection, sorted(group.required.forbidden), problem)
    for condition in has_traits(providers, (), ids.values()):
        yield condition, ""
    for any_of in group.member_of.any_of:
        yield in_any_aggregate(providers.c.id, aggregate_ids(connection, any_of)), "member_of"
    if group.member_of.forbidden:
        forbidden_ids = aggregate_ids(connection, group.member_of.forbidden)
        yield not_(in_any_aggregate(providers.c.id, forbidden_ids)), ""
    problem = "Invalid resource class in resources parameter: No such resource class {}."
    class_ids = names.resource_class_ids(connection, list(group.resources), problem)
    for name, amount in group.resources.items():
        inventory = inventories.alias()
        fitting = fits(inventory, class_ids[name], amount)
        yield exists().where(inventory.c.provider_id == providers.c.id, fitting), "resources"
