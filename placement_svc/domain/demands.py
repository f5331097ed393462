"""What the suppliers of a tree must supply, and what it comes to once they are chosen.

A *demand* is what one provider must supply whole: a suffixed group, or one resource class of the
unsuffixed group (`docs/spec/candidates.md 3`).
"""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from placement_svc.domain.groups import CandidatesRequest


@dataclass(frozen=True)
class Demand:
    """What one provider must supply whole: amounts by resource class, none if it need only be there."""

    suffix: str
    resources: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Terms:
    """What the suppliers of a candidate must meet together.

    `clauses` are the required traits of the unsuffixed group, by id: each is met by any supplier of
    that group. `same_subtree` are sets of demands, by index. With `one_per_tree` no two suppliers are
    of one tree (before 1.29).
    """

    demands: tuple[Demand, ...]
    clauses: tuple[frozenset[int], ...] = ()
    same_subtree: tuple[frozenset[int], ...] = ()
    isolate: bool = False
    one_per_tree: bool = False

    @functools.cached_property
    def suffixed(self) -> tuple[bool, ...]:
        """Which demands are suffixed groups; all others are of the unsuffixed one."""
        return tuple(bool(demand.suffix) for demand in self.demands)

    @functools.cached_property
    def summed(self) -> frozenset[str]:
        """The resource classes that one provider may have to supply to several demands."""
        suffixed = Counter(name for demand in self.demands if demand.suffix for name, _ in demand.resources)
        unsuffixed = {name for demand in self.demands if not demand.suffix for name, _ in demand.resources}
        # Groups that are kept apart share no provider with each other.
        least = len(self.demands) if self.isolate else 1
        return frozenset(name for name, n in suffixed.items() if n > least or name in unsuffixed)


def terms_of(
    request: CandidatesRequest, clauses: tuple[frozenset[int], ...] = (), *, one_per_tree: bool = False
) -> Terms:
    """Return what a request demands, its unsuffixed group taken apart by resource class.

    `clauses` are the required traits of that group, by id.
    """
    demands: list[Demand] = []
    for group in request.groups:
        resources = tuple(group.resources.items())
        if group.suffix:
            demands.append(Demand(group.suffix, resources))
        else:
            demands += [Demand("", (resource,)) for resource in resources]
    return Terms(
        demands=tuple(demands),
        clauses=clauses,
        same_subtree=tuple(
            frozenset(index for index, demand in enumerate(demands) if demand.suffix in suffixes)
            for suffixes in request.same_subtree
            if len(suffixes) > 1
        ),
        isolate=request.isolate,
        one_per_tree=one_per_tree,
    )


def allocations_of(demands: Sequence[Demand], uuids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the amounts to claim, by provider uuid and resource class, added over all demands.

    `uuids` are those of the suppliers of the demands.
    """
    amounts: dict[str, dict[str, int]] = {}
    for demand, uuid in zip(demands, uuids, strict=True):
        for name, amount in demand.resources:
            of_supplier = amounts.setdefault(uuid, {})
            of_supplier[name] = of_supplier.get(name, 0) + amount
    return amounts


def mappings_of(demands: Sequence[Demand], uuids: Sequence[str]) -> dict[str, list[str]]:
    """Return the uuids of the providers that satisfy each group, by suffix."""
    mappings: dict[str, list[str]] = {}
    for demand, uuid in zip(demands, uuids, strict=True):
        of_group = mappings.setdefault(demand.suffix, [])
        if uuid not in of_group:
            of_group.append(uuid)
    return mappings
