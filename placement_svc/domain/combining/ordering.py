"""The order of candidates and trees by `preferred` and `order_by` (`docs/spec/extensions.md 2`).

The *rank* of a candidate is its score and its key as two numbers, of which the lower ones come first. The
rank of a tree is the lowest rank of its candidates.
"""

from collections.abc import Collection, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from placement_svc.domain.combining.candidates import Candidate
from placement_svc.domain.combining.interfaces import SuppliersByDemand
from placement_svc.domain.combining.shared_lists import distinct_lists
from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.groups import OrderBy, OrderMethod

Rank = tuple[float, float]
"""The negative score, and the key: what is free of the class, negative for `spread`, 0 without a class."""

TreePosition = tuple[float, float, str]
"""The place of a tree in the order: its rank, and its uuid (with a random order, a random text)."""

RankedCandidates = Iterator[tuple[Rank, Candidate]]
"""The candidates of a tree by rank, with their ranks."""


@dataclass(frozen=True)
class Ordering:
    """The order that a request asks for; `preferred` are ids of traits."""

    preferred: frozenset[int]
    order_by: OrderBy | None
    class_demands: tuple[int, ...]
    """The indexes of the demands that ask for the class of `order_by`."""
    unsuffixed_demands: tuple[int, ...]
    """The indexes of the demands of the unsuffixed group."""

    @classmethod
    def of(
        cls, rules: CombinationRules, preferred: frozenset[int], order_by: OrderBy | None
    ) -> "Ordering | None":
        """Return the order of a request with these rules; None if it asks for none."""
        if not preferred and order_by is None:
            return None
        name = order_by.resource_class if order_by else None
        demands = rules.demands
        return cls(
            preferred=preferred,
            order_by=order_by,
            class_demands=tuple(n for n, demand in enumerate(demands) if name in dict(demand.resources)),
            unsuffixed_demands=tuple(n for n, demand in enumerate(demands) if not demand.suffix),
        )

    @property
    def resource_class(self) -> str | None:
        """The class of `order_by`; None if there is none."""
        return self.order_by.resource_class if self.order_by else None

    @property
    def is_random(self) -> bool:
        """Whether trees with the same score are in random order."""
        return self.order_by is not None and self.order_by.method is OrderMethod.RANDOM

    @property
    def spreads(self) -> bool:
        """Whether the greatest free amounts come first."""
        return self.order_by is not None and self.order_by.method is OrderMethod.SPREAD

    @property
    def packs(self) -> bool:
        """Whether the least free amounts come first."""
        return self.order_by is not None and self.order_by.method is OrderMethod.PACK


@dataclass
class SupplierFacts:
    """The facts that order candidates, by provider id.

    `free` has what is free of the class of `order_by`, and may be changed between two calculations.
    `preferred` has the preferred traits of each provider that has any. `tie_breakers` has a text of each
    supplier and root, which decides between equal ones: the uuid, or a random one.
    """

    free: MutableMapping[int, int] = field(default_factory=dict)
    preferred: MutableMapping[int, frozenset[int]] = field(default_factory=dict)
    tie_breakers: MutableMapping[int, str] = field(default_factory=dict)


def best_rank(
    ordering: Ordering, facts: SupplierFacts, suppliers: SuppliersByDemand, deadline: Deadline
) -> Rank:
    """Return a rank that is at most that of each candidate with these suppliers.

    It takes the best supplier of each demand, as if no constraint excluded their combination.
    """
    score = 0
    if ordering.preferred:
        unsuffixed = distinct_suppliers(suppliers, ordering.unsuffixed_demands)
        traits = (facts.preferred.get(id_, ()) for id_ in unsuffixed)
        score = len(set(chain.from_iterable(traits)))
    of_class = distinct_suppliers(suppliers, ordering.class_demands)
    free = [facts.free[id_] for id_ in deadline.checked(of_class)]
    key = (-max(free) if ordering.spreads else min(free)) if free else 0
    return -score, key


def distinct_suppliers(suppliers: SuppliersByDemand, demands: Sequence[int]) -> Collection[int]:
    """Return all suppliers of these demands; many demands can share a list."""
    if len(demands) == 1:
        return suppliers[demands[0]]
    return set(chain.from_iterable(distinct_lists(suppliers[demand] for demand in demands)))


def key_of(ordering: Ordering, facts: SupplierFacts, provider_id: int) -> int:
    """Return the key of a candidate with this supplier of the class of `order_by`."""
    free = facts.free[provider_id]
    return -free if ordering.spreads else free
