"""A request for candidates in the terms of the tables: ids for names, demands for groups."""

from collections.abc import Mapping
from dataclasses import dataclass

import os_traits
from sqlalchemy import Column, Connection, Select, any_, bindparam, literal, select, union_all
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import String

from placement_svc.db.tables import aggregates, resource_classes, resource_providers, traits
from placement_svc.domain.candidates import Terms
from placement_svc.domain.errors import Invalid
from placement_svc.domain.groups import CandidatesRequest, Membership

NO_TREE = 0
"""The root of a tree that does not exist: ids start at 1."""


@dataclass(frozen=True)
class Ids:
    """Clauses of ids, as in `Membership`: one of each of `required`, none of `forbidden`."""

    required: tuple[frozenset[int], ...]
    forbidden: frozenset[int]


@dataclass(frozen=True)
class Needs:
    """What a provider must be to supply one demand.

    `resources` are class ids and amounts, `tree` is the root of the only tree that will do (None:
    any). In the unsuffixed group (`unsuffixed`) an aggregate of the root counts for its whole tree,
    and required traits are a matter of all suppliers together: they are not in `traits`.
    """

    resources: tuple[tuple[int, int], ...]
    traits: Ids
    aggregates: Ids
    tree: int | None
    unsuffixed: bool

    @property
    def may_be_foreign(self) -> bool:
        """Whether a sharing provider of another tree will do (`spec/candidates.md 3.2 and 3.3`)."""
        return not (self.unsuffixed and self.tree is not None)


@dataclass(frozen=True)
class Search:
    """All that the statements of one search need to know.

    `needs` and `same_subtrees` go with `Terms.demands`; `clauses` are the required traits of the
    unsuffixed group, `root` what the anchor itself must have, of traits and of aggregates.
    """

    needs: tuple[Needs, ...]
    clauses: tuple[frozenset[int], ...]
    same_subtrees: tuple[frozenset[int], ...]
    root_traits: Ids
    root_aggregates: Ids
    sharing_trait: int


@dataclass(frozen=True)
class _Names:
    """The ids of everything a request names."""

    resource_classes: Mapping[str, int]
    traits: Mapping[str, int]
    aggregates: Mapping[str, int]
    roots: Mapping[str, int]

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
        tuple(frozenset(known[n] for n in clause if n in known) for clause in membership.required),
        frozenset(known[n] for n in membership.forbidden if n in known),
    )


def resolve(connection: Connection, request: CandidatesRequest, terms: Terms) -> Search:
    """Return `request` in ids; raises `Invalid` for an unknown trait or resource class.

    Unknown aggregates and trees are no error: nobody is in them.
    """
    names = _look_up(connection, request)
    root_traits = names.trait_ids(request.root_traits)
    needs: list[Needs] = []
    clauses: tuple[frozenset[int], ...] = ()
    root_aggregates: frozenset[int] = frozenset()
    for group in request.groups:
        resources = names.resource_class_ids(group.resources)
        group_traits = names.trait_ids(group.traits)
        group_aggregates = _ids(names.aggregates, group.aggregates)
        tree = None if group.in_tree is None else names.roots.get(group.in_tree, NO_TREE)
        if group.suffix:
            needs.append(Needs(resources, group_traits, group_aggregates, tree, unsuffixed=False))
            continue
        clauses = group_traits.required
        root_aggregates = group_aggregates.forbidden
        each = Ids((), group_traits.forbidden)
        needs += [Needs((resource,), each, group_aggregates, tree, unsuffixed=True) for resource in resources]
    return Search(
        needs=tuple(needs),
        clauses=clauses,
        same_subtrees=terms.same_subtrees,
        root_traits=root_traits,
        root_aggregates=Ids((), root_aggregates),
        sharing_trait=names.traits[os_traits.MISC_SHARES_VIA_AGGREGATE],
    )


def _find(kind: str, name: Column[str], id_: Column[int]) -> Select[str, str, int]:
    return select(literal(kind).label("kind"), name, id_).where(
        name == any_(bindparam(kind, type_=ARRAY(String)))
    )


_KINDS = {
    "resource_classes": (resource_classes.c.name, resource_classes.c.id),
    "traits": (traits.c.name, traits.c.id),
    "aggregates": (aggregates.c.uuid, aggregates.c.id),
    "roots": (resource_providers.c.uuid, resource_providers.c.root_id),
}
# One row for each name, by unique indexes.
_FIND_NAMES = union_all(*(_find(kind, *columns) for kind, columns in _KINDS.items()))


def _look_up(connection: Connection, request: CandidatesRequest) -> _Names:
    """Find all that a request names, in one statement."""
    groups = request.groups
    trait_names = {os_traits.MISC_SHARES_VIA_AGGREGATE, *request.root_traits.names}
    trait_names.update(name for group in groups for name in group.traits.names)
    wanted = {
        "resource_classes": [name for group in groups for name in group.resources],
        "traits": list(trait_names),
        "aggregates": [name for group in groups for name in group.aggregates.names],
        "roots": [group.in_tree for group in groups if group.in_tree],
    }
    found: dict[str, dict[str, int]] = {kind: {} for kind in _KINDS}
    for kind, name, id_ in connection.execute(_FIND_NAMES, wanted):
        found[kind][name] = id_
    return _Names(**found)
