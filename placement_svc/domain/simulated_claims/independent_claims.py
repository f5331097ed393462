"""The number of claims at roots whose demands never affect each other (`docs/spec/extensions.md 4`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from placement_svc.domain.demands import CombinationRules, Demand

Quotients = Sequence[int]
"""For each class of a demand, the number of claims for which the free amount of a supplier is enough."""


@dataclass(frozen=True)
class IndependentClaims:
    """The greatest number of claims at a root, and the classes of which the last one does not fit again."""

    count: int
    exhausted: frozenset[str]


def are_independent(rules: CombinationRules) -> bool:
    """Return whether the choice of a supplier for one demand never affects the other demands.

    This holds for all suppliers, as long as those of one root are no suppliers of another, and whatever
    suppliers are chosen, they have the traits in `unsuffixed_required`.
    """
    return (
        all(demand.resources for demand in rules.demands)
        and (not rules.isolated or sum(rules.suffixed) < 2)
        and not (rules.summed_classes or rules.same_subtree or rules.subtree_exclusions or rules.splittable)
    )


def independent_claims(
    demands: Sequence[Demand], suppliers: Sequence[Sequence[Quotients]]
) -> IndependentClaims:
    """Return the claims at a root with these suppliers of each demand, which are ordered by uuid.

    For each demand, the suppliers with most claims are used first.
    """
    count = min([sum(map(min, quotients)) for quotients in suppliers])
    exhausted = set[str]()
    for demand, quotients in zip(demands, suppliers, strict=True):
        unsupplied = count
        for by_class in sorted(quotients, key=min, reverse=True):
            times = min(by_class)
            unsupplied -= times
            if unsupplied == 0:
                names = (name for name, _ in demand.resources)
                exhausted.update(name for name, each in zip(names, by_class, strict=True) if each == times)
            if unsupplied <= 0:
                break
    return IndependentClaims(count, frozenset(exhausted))
