"""Orders of trees and their candidates, for consumers that are placed one after the other."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from placement_svc.domain.combining.candidates import Candidate
from placement_svc.domain.simulated_claims.amounts import ClaimAmounts, RootSuppliers

Key = tuple[Any, ...]
"""The position of a tree or a candidate in an order: smaller keys come first."""


class TreeOrder(Protocol):
    """The order in which trees and their candidates are used.

    `improves` is whether the key of a tree can become better when amounts of its suppliers are used.
    """

    improves: bool

    def bound(self, root: RootSuppliers) -> Key:
        """Return a key that is at most the key of each candidate of a tree, without looking at these."""

    def candidates(self, root: RootSuppliers) -> Iterator[tuple[Key, Candidate]]:
        """Yield the candidates of a tree with their keys, the best ones first.

        `root` has only those suppliers that are to be used.
        """

    def record(self, root: RootSuppliers, amounts: ClaimAmounts) -> None:
        """Record that a consumer was placed around a root."""


class Rotation:
    """The order without `preferred` and `order_by`: each tree in turn, as they were added."""

    improves = False

    def __init__(self, combine_root: Callable[[RootSuppliers], Iterator[Candidate]]) -> None:
        self._combine = combine_root
        self._uses = Counter[int]()
        self._positions: dict[int, int] = {}

    def bound(self, root: RootSuppliers) -> Key:
        """Return how often the tree was used, and its position."""
        return self._uses[root.id], self._positions.setdefault(root.id, len(self._positions))

    def candidates(self, root: RootSuppliers) -> Iterator[tuple[Key, Candidate]]:
        """Yield the candidates of a tree: all are equal."""
        key = self.bound(root)
        return ((key, candidate) for candidate in self._combine(root))

    def record(self, root: RootSuppliers, amounts: ClaimAmounts) -> None:
        """Put the tree behind those that were used less often."""
        self._uses[root.id] += 1
