"""The order of trees by `preferred` and `order_by`, while consumers are placed on them."""

from collections.abc import Callable, Iterator

from placement_svc.domain.combining.candidates import Candidate
from placement_svc.domain.combining.interfaces import TreeSuppliers
from placement_svc.domain.combining.ordered_candidates import ordered_candidates
from placement_svc.domain.combining.ordering import Ordering, SupplierFacts, best_rank
from placement_svc.domain.placing.tree_orders import Key
from placement_svc.domain.simulated_claims.amounts import ClaimAmounts, RootSuppliers


class RankedOrder:
    """A `TreeOrder`: the keys are the ranks of candidates, followed by the text of the root.

    In a random order, a tree that was used comes after all other added trees of the same rank.

    Placements change the free amounts of `facts`. `text_of` returns what decides between roots of the same
    rank, such as the uuid, by the id of a root, and `to_tree` what combines suppliers. With
    `may_split`, a tree can have better candidates after a placement: several providers supply a class as soon
    as no single one can.
    """

    def __init__(
        self,
        ordering: Ordering,
        facts: SupplierFacts,
        text_of: Callable[[int], str],
        to_tree: Callable[[RootSuppliers], TreeSuppliers],
        *,
        may_split: bool,
    ) -> None:
        self._ordering = ordering
        self._facts = facts
        self._text_of = text_of
        self._to_tree = to_tree
        self.improves = may_split or ordering.packs
        self._resource_class = ordering.resource_class
        self._last = ""
        """The last text of the roots that were added."""
        self._uses = 0
        self._used: dict[int, str] = {}
        """For a random order, texts in place of those of the roots that were used, in this order."""

    def bound(self, root: RootSuppliers) -> Key:
        """Return the key of a candidate of the best supplier for each demand."""
        rank = best_rank(self._ordering, self._facts, root.suppliers, self._to_tree(root).deadline)
        self._last = max(self._last, self._text_of(root.id))
        return *rank, self._text(root)

    def candidates(self, root: RootSuppliers) -> Iterator[tuple[Key, Candidate]]:
        """Yield the candidates of a tree by rank."""
        tree = self._to_tree(root)
        reserved = tree.memory.reserved
        try:
            best = best_rank(self._ordering, self._facts, tree.suppliers, tree.deadline)
            for rank, candidate in ordered_candidates(self._ordering, self._facts, tree, best):
                yield (*rank, self._text(root)), candidate
        finally:
            # The tree is combined anew for the next consumer.
            tree.memory.release(tree.memory.reserved - reserved)

    def record(self, root: RootSuppliers, amounts: ClaimAmounts) -> None:
        """Use up what a consumer has got of the class of `order_by`; put a tree of a random order last."""
        if self._ordering.is_random:
            self._uses += 1
            # Behind the texts of these roots, and before those of roots that are added later.
            self._used[root.id] = f"{self._last}~{self._uses:06}"
        for (provider_id, resource_class), amount in amounts.items():
            if resource_class == self._resource_class:
                self._facts.free[provider_id] -= amount

    def _text(self, root: RootSuppliers) -> str:
        """Return what decides between trees of the same rank."""
        return self._used.get(root.id) or self._text_of(root.id)
