"""The order in which simulated claims use the suppliers of a demand."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence

from placement_svc.domain.combining.shared_lists import distinct_lists
from placement_svc.domain.demands import Demand, Resources
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.simulated_claims.amounts import (
    ClaimAmounts,
    InventoryKey,
    RootSuppliers,
    SimulatedInventories,
)


class SupplierOrders:
    """The suppliers of lists that can still supply a demand, each with the number of claims.

    Those of the root's own tree come first, then those with most claims left, then in the order of the list.

    Thousands of roots can share a list of as many sharing providers. Its order is kept: the claims at a root
    change the places of few of them.
    """

    def __init__(
        self, inventories: SimulatedInventories, roots: Sequence[RootSuppliers], deadline: Deadline
    ) -> None:
        self._inventories = inventories
        self._deadline = deadline
        uses = Counter(id(ids) for root in deadline.checked(roots) for ids in distinct_lists(root.suppliers))
        # The roots outlive this object, so that no other list gets the identity of one of theirs.
        self._shared_lists = {key for key, count in uses.items() if count > 1}
        self._kept: dict[tuple[int, Resources], _KeptOrder] = {}
        self._claimed: list[InventoryKey] = []
        """The inventories of all claims, in the order of these."""

    def claim(self, amounts: ClaimAmounts, times: int) -> None:
        """Use the amounts of so many claims."""
        self._inventories.claim(amounts, times)
        if self._shared_lists:
            self._claimed += amounts

    def able(self, root_id: int, demand: Demand, ids: Sequence[int]) -> Mapping[int, int]:
        """Return the suppliers that can still supply a demand with resources, in their order."""
        if id(ids) not in self._shared_lists:
            return self._sorted(root_id, demand, ids)
        key = id(ids), demand.resources
        if key not in self._kept:
            self._kept[key] = _KeptOrder(self._inventories, self._claimed, demand, ids, self._deadline)
        return self._kept[key].able(root_id)

    def _sorted(self, root_id: int, demand: Demand, ids: Sequence[int]) -> Mapping[int, int]:
        inventories = self._inventories
        checked = self._deadline.checked(ids)
        times = [(id_, count) for id_ in checked if (count := inventories.times_of(demand, id_))]
        if len(times) > 1:
            times.sort(key=lambda item: (inventories.path(item[0])[0] != root_id, -item[1]))
        return dict(times)


class _KeptOrder:
    """The suppliers of one list that can still supply a demand, those with most claims left first."""

    def __init__(
        self,
        inventories: SimulatedInventories,
        claimed: Sequence[InventoryKey],
        demand: Demand,
        ids: Sequence[int],
        deadline: Deadline,
    ) -> None:
        self._inventories = inventories
        self._claimed = claimed
        self._demand = demand
        self._class_names = {name for name, _ in demand.resources}
        self._places = {id_: place for place, id_ in enumerate(ids)}
        self._times = {id_: inventories.times_of(demand, id_) for id_ in deadline.checked(ids)}
        self._order = sorted((-times, self._places[id_], id_) for id_, times in self._times.items() if times)
        """The suppliers, each behind the negative number of claims and its place in the list."""
        self._seen_claims = len(claimed)
        self._by_root: dict[int, list[int]] = {}
        for id_ in deadline.checked(ids):
            self._by_root.setdefault(inventories.path(id_)[0], []).append(id_)

    def able(self, root_id: int) -> Mapping[int, int]:
        """Return the suppliers, each with the number of claims; those of the tree of a root come first."""
        for id_, name in self._claimed[self._seen_claims :]:
            if name in self._class_names and id_ in self._places:
                self._update(id_)
        self._seen_claims = len(self._claimed)
        found = {id_: -negative for negative, _, id_ in self._order}
        own = self._by_root.get(root_id)
        return {id_: found[id_] for id_ in found if id_ in own} | found if own else found

    def _update(self, id_: int) -> None:
        before, now = self._times[id_], self._inventories.times_of(self._demand, id_)
        if now == before:
            return
        place = self._places[id_]
        self._times[id_] = now
        if before:
            del self._order[bisect_left(self._order, (-before, place))]
        if now:
            insort(self._order, (-now, place, id_))
