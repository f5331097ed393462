"""The number of roots among the suppliers of all candidates, without generating all candidates."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from placement_svc.db.explanation.cloud import Cloud, EqualRoots, Node
from placement_svc.db.explanation.combinations import Combinations
from placement_svc.db.explanation.counts import RootCounts
from placement_svc.domain.combining.split_suppliers import provider_ids_of
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.explanation.root_tests import GroupTest

OWN_TREE = -1
"""Stands for the trees of a group of equal roots; no provider has this id."""


def has_shared_suppliers(root: EqualRoots, tests: Sequence[GroupTest]) -> bool:
    """Return whether a sharing provider may supply a demand at a root, perhaps one of another tree."""
    return any(
        demand.supplies(root.pattern.root, pattern, is_shared=True)
        for pattern in root.pattern.shared
        for test in tests
        for demand in test.demands
    )


def count_returned_roots(counts: RootCounts, combinations: Combinations, deadline: Deadline) -> int:
    """Return the number of different roots among the suppliers of all candidates.

    `combinations` have counted the roots of `counts`. Raises what `combine` raises.
    """
    return _ReturnedRoots(counts, combinations, deadline).count()


class _ReturnedRoots:
    """The search for candidates that have suppliers of trees without any so far.

    Each candidate that it finds adds a tree, and at each `EqualRoots` the search ends once for each demand.
    """

    def __init__(self, counts: RootCounts, combinations: Combinations, deadline: Deadline) -> None:
        self._counts = counts
        self._combinations = combinations
        self._deadline = deadline
        self._alone = _alone_in_their_trees(counts.cloud)
        self._found = set[int]()
        """The roots of other trees that have suppliers in candidates."""

    def count(self) -> int:
        """Return the number of roots."""
        tests = self._counts.all_tests()
        own: list[EqualRoots] = []
        for root in self._deadline.checked(self._counts.in_root_filters):
            if root.root_ids[0] in self._combinations.first_failures:
                continue
            if not has_shared_suppliers(root, tests) or self._has_own_supplier(root):
                own.append(root)
        for root in own:
            self._found.difference_update(root.root_ids)
        return len(self._found) + sum(len(root.root_ids) for root in own)

    def _has_own_supplier(self, root: EqualRoots) -> bool:
        """Add the other trees in the candidates of a root; return whether its own tree has a supplier."""
        tree = self._combinations.tree(root)
        suppliers = tree.suppliers(self._counts.all_tests())
        alike = self._alike(root)
        found = self._found
        found.discard(OWN_TREE)

        def tree_of(id_: int) -> int:
            return OWN_TREE if id_ < 0 else tree.path(id_)[0]

        for number, ids in enumerate(suppliers):
            while new := [id_ for id_ in self._deadline.checked(ids) if tree_of(id_) not in found]:
                reduced = [*suppliers[:number], new, *suppliers[number + 1 :]]
                candidate = self._combinations.first_candidate(tree, reduced)
                if candidate is None:
                    break
                for id_ in chain.from_iterable(map(provider_ids_of, candidate)):
                    found.add(tree_of(id_))
                    if id_ in self._alone:
                        found.update(alike.pop(self._alone[id_], ()))
        is_found = OWN_TREE in found
        found.discard(OWN_TREE)
        return is_found

    def _alike(self, root: EqualRoots) -> dict[Node, list[int]]:
        """Return the roots of equal sharing providers: each can replace another one in a candidate."""
        alike: dict[Node, list[int]] = {}
        for provider in self._deadline.checked(self._counts.cloud.serving_from_elsewhere(root)):
            if provider.id in self._alone:
                alike.setdefault(provider.node, []).append(provider.root_id)
        return alike


def _alone_in_their_trees(cloud: Cloud) -> dict[int, Node]:
    """Return by id the sharing providers whose trees have no other one."""
    numbers = Counter(provider.root_id for provider in cloud.sharing)
    return {provider.id: provider.node for provider in cloud.sharing if numbers[provider.root_id] == 1}
