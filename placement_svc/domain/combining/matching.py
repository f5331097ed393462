"""Bipartite matching: whether demands can all have different suppliers at the same time."""

from collections import deque
from collections.abc import Iterable, Sequence

from placement_svc.domain.execution.deadline import Deadline


def can_all_differ(suppliers: Iterable[Sequence[int]], deadline: Deadline) -> bool:
    """Return whether each demand can have one of its suppliers, such that all are different.

    The time is at most proportional to the number of demands and to the sum of the numbers of suppliers.
    """
    contended = sorted(suppliers, key=len)
    # With so many suppliers, the last demand finds a free one whatever the others have.
    while contended and len(contended[-1]) >= len(contended):
        contended.pop()
    matching = _Matching(contended, deadline)
    return all(map(matching.add, range(len(contended))))


def different_suppliers(suppliers: Sequence[Sequence[int]], deadline: Deadline) -> list[int] | None:
    """Return one of its suppliers for each demand, such that all are different; None if it is impossible."""
    matching = _Matching(suppliers, deadline)
    demands = range(len(suppliers))
    return [matching.supplier_of[demand] for demand in demands] if all(map(matching.add, demands)) else None


class _Matching:
    """The suppliers of some demands, all different."""

    def __init__(self, suppliers: Sequence[Sequence[int]], deadline: Deadline) -> None:
        self._suppliers = suppliers
        self._deadline = deadline
        self.supplier_of: dict[int, int] = {}
        self._demand_of: dict[int, int] = {}

    def add(self, new_demand: int) -> bool:
        """Give a further demand a supplier if possible; demands before it may get other suppliers.

        This finds an augmenting path by a breadth-first search.
        """
        reached_from: dict[int, int] = {}
        queue = deque([new_demand])
        while queue:
            demand = queue.popleft()
            for id_ in self._deadline.checked(self._suppliers[demand]):
                if id_ in reached_from:
                    continue
                reached_from[id_] = demand
                if id_ not in self._demand_of:
                    self._reassign(reached_from, id_)
                    return True
                queue.append(self._demand_of[id_])
        return False

    def _reassign(self, reached_from: dict[int, int], free: int) -> None:
        """Give the free supplier to the demand that reached it, its own one to the demand before it."""
        released: int | None = free
        while released is not None:
            demand = reached_from[released]
            previous = self.supplier_of.get(demand)
            self.supplier_of[demand], self._demand_of[released] = released, demand
            released = previous
