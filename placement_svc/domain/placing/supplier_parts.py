"""The suppliers around a root from which the candidates of a consumer are combined.

They depend on what is still free, and on the roots that a `PlacementRule` ranks.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from placement_svc.domain.combining.candidates import Candidate
from placement_svc.domain.combining.split_suppliers import provider_ids_of
from placement_svc.domain.combining.splitting import whole_suppliers
from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.simulated_claims.amounts import RootSuppliers, SimulatedInventories


class Part(NamedTuple):
    """Suppliers around a root, of whose candidates those count whose roots are among `root_ids`."""

    root_ids: frozenset[int]
    suppliers: RootSuppliers


class SupplierParts:
    """Selects suppliers around a root, for one request.

    `sharing_ids` are the suppliers with MISC_SHARES_VIA_AGGREGATE. `inventories` has what is free.
    """

    def __init__(
        self,
        rules: CombinationRules,
        inventories: SimulatedInventories,
        sharing_ids: Collection[int],
        deadline: Deadline,
    ) -> None:
        self.sharing_ids = sharing_ids
        self._rules = rules
        self._inventories = inventories
        self._deadline = deadline

    def available(self, root: RootSuppliers) -> RootSuppliers:
        """Return a root with those suppliers of each demand that can still supply it.

        If none can supply a demand that may be split, all are left.
        """
        times_of, checked = self._inventories.times_of, self._deadline.checked
        available: list[Sequence[int]] = []
        for number, (demand, ids) in enumerate(zip(self._rules.demands, root.suppliers, strict=True)):
            if number in self._rules.splittable:
                available.append(whole_suppliers(demand, ids, self._inventories, self._deadline) or ids)
            elif demand.resources:
                available.append([id_ for id_ in checked(ids) if times_of(demand, id_)])
            else:
                available.append(ids)
        return RootSuppliers(root.id, available)

    def with_own_suppliers(self, root: RootSuppliers, split: Collection[int]) -> Iterator[Part]:
        """Yield parts with all candidates that do not consist of sharing providers alone.

        In each part, another demand is the first one whose supplier does not share.
        """
        if not self.sharing_ids:
            yield Part(frozenset([root.id]), root)
            return
        suppliers = list(root.suppliers)
        sharing = self.only_sharing(root, split).suppliers
        for number, (demand, ids) in enumerate(zip(self._rules.demands, root.suppliers, strict=True)):
            if not demand.resources:
                continue
            own = [id_ for id_ in self._deadline.checked(ids) if id_ not in self.sharing_ids]
            suppliers[number] = ids if own and number in split else own
            if all(suppliers):
                yield Part(frozenset([root.id]), RootSuppliers(root.id, list(suppliers)))
            suppliers[number] = sharing[number]

    def within(self, root: RootSuppliers, sets: Sequence[frozenset[int]]) -> Iterator[Part]:
        """Yield a part for each set of roots: the suppliers of these roots, if they supply all demands."""
        set_numbers = {root_id: number for number, root_ids in enumerate(sets) for root_id in root_ids}
        lists: list[Sequence[Sequence[int]]] = []
        for demand, ids in zip(self._rules.demands, root.suppliers, strict=True):
            if not demand.resources:
                lists.append([ids] * len(sets))
                continue
            of_sets: list[list[int]] = [[] for _ in sets]
            for id_ in self._deadline.checked(ids):
                set_number = set_numbers.get(self.root_id(id_))
                if set_number is not None:
                    of_sets[set_number].append(id_)
            lists.append(of_sets)
        for root_ids, *suppliers in zip(sets, *lists, strict=True):
            if all(suppliers):
                yield Part(root_ids, RootSuppliers(root.id, suppliers))

    def supplying_roots(self, root: RootSuppliers) -> Collection[int]:
        """Return the roots of the suppliers of resources, each once, in the order of the suppliers."""
        return dict.fromkeys(
            self.root_id(id_)
            for demand, ids in zip(self._rules.demands, root.suppliers, strict=True)
            if demand.resources
            for id_ in self._deadline.checked(ids)
        )

    def split_demands(self, root: RootSuppliers) -> Collection[int]:
        """Return the demands that no single provider can supply, of those that `available` kept.

        Which splits there are depends on all suppliers of a class, so these lists must stay complete.
        """
        return [
            number
            for number in self._rules.splittable
            if not whole_suppliers(
                self._rules.demands[number], root.suppliers[number][:1], self._inventories, self._deadline
            )
        ]

    def only_sharing(self, root: RootSuppliers, split: Collection[int] = ()) -> RootSuppliers:
        """Return a root without the suppliers of resources that are not sharing providers.

        A demand in `split` keeps those if one of the providers that may be parts of a split shares.
        """
        suppliers: list[Sequence[int]] = []
        for number, (demand, ids) in enumerate(zip(self._rules.demands, root.suppliers, strict=True)):
            sharing = [id_ for id_ in ids if id_ in self.sharing_ids]
            if number in split:
                suppliers.append(ids if any(self.root_id(id_) == root.id for id_ in sharing) else [])
            else:
                suppliers.append(sharing if demand.resources else ids)
        return RootSuppliers(root.id, suppliers)

    def roots_of(self, candidate: Candidate) -> frozenset[int]:
        """Return the roots of a consumer with this candidate."""
        suppliers = {
            id_
            for demand, supplier in zip(self._rules.demands, candidate, strict=True)
            if demand.resources
            for id_ in provider_ids_of(supplier)
        }
        return frozenset(map(self.root_id, suppliers.difference(self.sharing_ids) or suppliers))

    def root_id(self, provider_id: int) -> int:
        """Return the root of a provider."""
        return self._inventories.path(provider_id)[0]
