"""A request for candidates in the terms of the tables: ids for names, demands for groups."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import os_traits
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    any_,
    bindparam,
    column,
    func,
    literal,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer, String

from placement_svc.db.tables import (
    aggregates,
    inventories,
    provider_aggregates,
    provider_traits,
    resource_classes,
    resource_providers,
    traits,
)
from placement_svc.domain.demands import Terms, terms_of
from placement_svc.domain.errors import Invalid
from placement_svc.domain.groups import CandidatesRequest, Membership
from placement_svc.domain.inventory import MAX_INTEGER

NO_TREE = 0
"""The root of a tree that does not exist: ids start at 1."""

FEW = 200
"""What fewer providers have, a trait, an aggregate or room enough, is where a search best starts."""


@dataclass(frozen=True)
class Ids:
    """Clauses of ids, as in `Membership`: one of each of `required`, none of `forbidden`."""

    any_of: tuple[frozenset[int], ...]
    forbidden: frozenset[int]

    def __bool__(self) -> bool:
        """Tell whether anything is asked at all."""
        return bool(self.any_of or self.forbidden)


@dataclass(frozen=True)
class Needs:
    """What a provider must be to supply one demand.

    `resources` are class ids and amounts, `tree` is the root of the only tree that will do (None:
    any), `selective` tells that only few providers have the traits required, and `scarce` that only
    few can be suppliers, for whatever reason. In the unsuffixed group (`unsuffixed`) an aggregate of
    the root counts for its whole tree, and required traits are a matter of all suppliers together:
    they are not in `traits`.
    """

    resources: tuple[tuple[int, int], ...]
    required: Ids
    member_of: Ids
    tree: int | None
    unsuffixed: bool
    selective: bool
    scarce: bool

    @property
    def may_be_foreign(self) -> bool:
        """Whether a sharing provider of another tree will do (`docs/spec/candidates.md 3.2 and 3.3`)."""
        return not (self.unsuffixed and self.tree is not None)


@dataclass(frozen=True)
class Search:
    """All that the statements of one search need to know.

    `needs` go with `Terms.demands`; `terms.clauses` are the required traits of the unsuffixed group,
    `common_traits` those of all the traits named that more than a few providers have. `root_required` is
    what the anchor itself must be like, and in none of `root_aggregates` may it be.
    """

    terms: Terms
    needs: tuple[Needs, ...]
    common_traits: frozenset[int]
    root_required: Ids
    root_aggregates: frozenset[int]
    sharing_trait: int | None
    """None if no provider has it."""

    def is_scarce(self, demands: Collection[int]) -> bool:
        """Tell whether few trees can meet what is asked, sharing providers supplying these demands."""
        rare_clause = any(clause.isdisjoint(self.common_traits) for clause in self.terms.clauses)
        return rare_clause or any(
            needs.scarce for index, needs in enumerate(self.needs) if index not in demands
        )


@dataclass(frozen=True)
class _Names:
    """The ids of everything a request names, and how many providers have what it names."""

    resource_classes: Mapping[str, int]
    traits: Mapping[str, int]
    aggregates: Mapping[str, int]
    roots: Mapping[str, int]
    holders: Mapping[tuple[str, int], int]
    """Of traits and aggregates, by kind and id, counted up to `FEW`."""
    rooms: Mapping[tuple[str, int], int]
    """How many inventories have room, by class and amount, counted up to `FEW`."""

    @property
    def common_traits(self) -> frozenset[int]:
        """The traits that more than a few providers have."""
        return frozenset(id_ for (kind, id_), n in self.holders.items() if kind == "traits" and n == FEW)

    def is_scarce(self, resources: Mapping[str, int], group_aggregates: Ids) -> bool:
        """Tell whether only few providers have room for the resources, or are in the aggregates."""
        members = (
            sum(self.holders["aggregates", id_] for id_ in clause) for clause in group_aggregates.any_of
        )
        rooms = (self.rooms.get(resource, 0) for resource in resources.items())
        return any(number < FEW for number in (*members, *rooms))

    def trait_ids(self, membership: Membership) -> Ids:
        """Return the ids of the traits asked for; raises `Invalid` for an unknown one."""
        for name in membership.names:
            if name not in self.traits:
                raise Invalid(f"No such trait(s): {name}.")
        return _ids(self.traits, membership)

    def resource_class_ids(self, resources: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
        """Return the amounts by class id; raises `Invalid` for an unknown class."""
        for name in resources:
            if name not in self.resource_classes:
                raise Invalid(
                    f"Invalid resource class in resources parameter: No such resource class {name}."
                )
        return tuple((self.resource_classes[name], amount) for name, amount in resources.items())


def _ids(known: Mapping[str, int], membership: Membership) -> Ids:
    """Return the ids of what is asked; what is unknown has none, so that nothing is in it."""
    return Ids(
        tuple(frozenset(known[n] for n in clause if n in known) for clause in membership.any_of),
        frozenset(known[n] for n in membership.forbidden if n in known),
    )


def resolve(connection: Connection, request: CandidatesRequest, *, one_per_tree: bool) -> Search:
    """Return `request` in ids; raises `Invalid` for an unknown trait or resource class.

    Unknown aggregates and trees are no error: nobody is in them.
    """
    names = _look_up(connection, request)
    root_required = names.trait_ids(request.root_required)
    common_traits = names.common_traits
    needs: list[Needs] = []
    clauses: tuple[frozenset[int], ...] = ()
    root_aggregates: frozenset[int] = frozenset()
    for group in request.groups:
        resources = names.resource_class_ids(group.resources)
        group_traits = names.trait_ids(group.required)
        group_aggregates = _ids(names.aggregates, group.member_of)
        tree = None if group.in_tree is None else names.roots.get(group.in_tree, NO_TREE)
        selective = any(clause.isdisjoint(common_traits) for clause in group_traits.any_of)
        scarce = selective or tree is not None or names.is_scarce(group.resources, group_aggregates)
        if group.suffix:
            needs.append(Needs(resources, group_traits, group_aggregates, tree, False, selective, scarce))
            continue
        clauses = group_traits.any_of
        root_aggregates = group_aggregates.forbidden
        each = Ids((), group_traits.forbidden)
        needs += [
            Needs((resource,), each, group_aggregates, tree, True, False, scarce) for resource in resources
        ]
    sharing_trait = names.traits[os_traits.MISC_SHARES_VIA_AGGREGATE]
    return Search(
        terms=terms_of(request, clauses, one_per_tree=one_per_tree),
        needs=tuple(needs),
        common_traits=common_traits,
        root_required=root_required,
        root_aggregates=root_aggregates,
        sharing_trait=sharing_trait if names.holders["traits", sharing_trait] else None,
    )


def _find(
    kind: str, name: Column[str], id_: Column[int], number: ColumnElement[int]
) -> Select[str, str, int, int]:
    return select(literal(kind).label("kind"), name, id_, number).where(
        name == any_(bindparam(kind, type_=ARRAY(String)))
    )


def _up_to_few(rows: Select[Any]) -> ColumnElement[int]:
    """Return how many rows there are, counting no further than `FEW`."""
    return select(func.count()).select_from(rows.limit(FEW).subquery()).scalar_subquery()


def _having(table: Table, key: Column[int], holder: Column[int]) -> ColumnElement[int]:
    return _up_to_few(select(literal(1)).select_from(table).where(holder == key).correlate(key.table))


def _find_rooms() -> Select[str, str, int, int]:
    wanted = (
        func.unnest(bindparam("classes", type_=ARRAY(String)), bindparam("amounts", type_=ARRAY(Integer)))
        .table_valued(column("name", String), column("amount", Integer))
        .render_derived("wanted")
    )
    room = select(literal(1)).where(
        inventories.c.resource_class_id == resource_classes.c.id,
        inventories.c.max_allocatable >= wanted.c.amount,
    )
    return select(
        literal("rooms"),
        wanted.c.name,
        wanted.c.amount,
        _up_to_few(room.correlate(resource_classes, wanted)),
    ).join(resource_classes, resource_classes.c.name == wanted.c.name)


_NONE: ColumnElement[int] = literal_column("0")
# One row for each name, by unique indexes; and up to FEW entries of an index for each trait,
# aggregate and amount.
_FIND_NAMES = union_all(
    _find("resource_classes", resource_classes.c.name, resource_classes.c.id, _NONE),
    _find(
        "traits",
        traits.c.name,
        traits.c.id,
        _having(provider_traits, traits.c.id, provider_traits.c.trait_id),
    ),
    _find(
        "aggregates",
        aggregates.c.uuid,
        aggregates.c.id,
        _having(provider_aggregates, aggregates.c.id, provider_aggregates.c.aggregate_id),
    ),
    _find("roots", resource_providers.c.uuid, resource_providers.c.root_id, _NONE),
    _find_rooms(),
)


def _look_up(connection: Connection, request: CandidatesRequest) -> _Names:
    """Find all that a request names, in one statement."""
    groups = request.groups
    trait_names = {os_traits.MISC_SHARES_VIA_AGGREGATE, *request.root_required.names}
    trait_names.update(name for group in groups for name in group.required.names)
    amounts = {item for group in groups for item in group.resources.items() if item[1] <= MAX_INTEGER}
    wanted = {
        "resource_classes": [name for group in groups for name in group.resources],
        "traits": list(trait_names),
        "aggregates": [name for group in groups for name in group.member_of.names],
        "roots": [group.in_tree for group in groups if group.in_tree],
        "classes": [name for name, _ in amounts],
        "amounts": [amount for _, amount in amounts],
    }
    found: dict[str, dict[str, int]] = {
        kind: {} for kind in ("resource_classes", "traits", "aggregates", "roots")
    }
    holders: dict[tuple[str, int], int] = {}
    rooms: dict[tuple[str, int], int] = {}
    for kind, name, id_, number in connection.execute(_FIND_NAMES, wanted):
        if kind == "rooms":
            rooms[name, id_] = number
        else:
            found[kind][name] = id_
            holders[kind, id_] = number
    return _Names(**found, holders=holders, rooms=rooms)
