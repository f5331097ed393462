"""The constraint of the pieces with a `!` in `same_subtree` (`docs/spec/extensions.md 2.3`)."""

from collections import Counter
from collections.abc import Hashable, Iterator

from placement_svc.domain.combining.interfaces import Combining, Constraint
from placement_svc.domain.demands import SubtreeExclusion


def subtree_exclusion_constraints(combining: Combining) -> Iterator[Constraint]:
    """Return the constraint of each `same_subtree` with a `!`."""
    return (_ExcludedFromSubtree(combining, each) for each in combining.rules.subtree_exclusions)


class _ExcludedFromSubtree(Constraint):
    """No supplier of an excluded demand is in the subtree of the topmost supplier of the other demands.

    The constraint of `same_subtree` ensures that this supplier is at or above all others: its path is the
    shortest. As long as some of these demands have no supplier, the topmost one of all can only be higher.
    """

    def __init__(self, combining: Combining, exclusion: SubtreeExclusion) -> None:
        self._path = combining.providers.path
        self._demands = exclusion.demands
        self._excluded = exclusion.excluded
        self._top: list[int] = []
        """After each assignment of one of the demands, their topmost supplier so far."""
        self._above_excluded: Counter[int] = Counter()
        """For each provider, how many excluded demands have a supplier in its subtree; none is 0."""
        self._last_steps = [
            max(step for step, demand in enumerate(combining.order) if demand in demands)
            for demands in (exclusion.demands, exclusion.excluded)
        ]
        """The last step that assigns one of the demands, and the last one that assigns an excluded one."""

    def allows(self, demand: int, provider_id: int) -> bool:
        if demand in self._demands:
            return self._top_with(provider_id) not in self._above_excluded
        return not (demand in self._excluded and self._top and self._top[-1] in self._path(provider_id))

    def _top_with(self, provider_id: int) -> int:
        if self._top and len(self._path(self._top[-1])) <= len(self._path(provider_id)):
            return self._top[-1]
        return provider_id

    def assign(self, demand: int, provider_id: int) -> None:
        if demand in self._demands:
            self._top.append(self._top_with(provider_id))
        elif demand in self._excluded:
            self._above_excluded.update(self._path(provider_id))

    def unassign(self, demand: int, provider_id: int) -> None:
        if demand in self._demands:
            self._top.pop()
        elif demand in self._excluded:
            for id_ in self._path(provider_id):
                self._above_excluded[id_] -= 1
                if not self._above_excluded[id_]:
                    del self._above_excluded[id_]

    def state(self, depth: int) -> Hashable:
        last, last_excluded = self._last_steps
        # The ids are greater than 0, so a negative one stands for the topmost supplier.
        top = [-self._top[-1]] if self._top and depth <= max(last, last_excluded) else []
        above = self._above_excluded if depth <= last else ()
        return frozenset([*top, *above])
