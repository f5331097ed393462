"""The trees of equal roots, from which suppliers are combined."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from placement_svc.db.explanation.cloud import Cloud, EqualRoots, Node
from placement_svc.domain.explanation.filters import FilterCode
from placement_svc.domain.explanation.root_tests import GroupTest
from placement_svc.domain.explanation.supplier_tests import SplitTest, SupplierTest, part_limits
from placement_svc.domain.inventory import MAX_CAPACITY, UnitLimits


class EqualRootsTree:
    """The tree of each of some equal roots, and the sharing providers of other trees: a `UnitLookup`.

    The providers of the tree have the ids -1, -2 and so on, in the order of the nodes. The traits of a
    provider are the numbers of the bits of its pattern. With `unused`, amounts are what an inventory could
    supply if nothing were used; `exceptions` has other values of `max_allocatable` of single providers.
    """

    root_id = -1
    """The id of the root."""

    def __init__(
        self,
        cloud: Cloud,
        root: EqualRoots,
        summed_classes: Sequence[str],
        split_classes: Sequence[str] = (),
        *,
        unused: bool = False,
        exceptions: Mapping[tuple[int, str], int] | None = None,
    ) -> None:
        self._root = root
        self._own = {-1 - number: node for number, node in enumerate(root.nodes)}
        self._sharing = {each.id: each for each in cloud.serving_from_elsewhere(root)}
        self._columns = {name: 2 * number + unused for number, name in enumerate(summed_classes)}
        self._split_classes = split_classes
        codes = FilterCode.UNIT, FilterCode.CAPACITY if unused else FilterCode.FREE
        self._part_limits = part_limits(codes, MAX_CAPACITY)
        self._exceptions = exceptions or {}
        self._paths: dict[int, tuple[int, ...]] = {}

    def suppliers(self, tests: Sequence[GroupTest]) -> list[list[int]]:
        """Return for each demand of the request the ids of its suppliers; equal demands share one list."""
        suppliers: dict[SupplierTest, list[int]] = {}
        for test in tests:
            for demand in test.demands:
                if demand not in suppliers:
                    test.deadline.check()
                    suppliers[demand] = self._suppliers_of(demand)
        return [suppliers[demand] for test in tests for demand in test.demands]

    def _suppliers_of(self, demand: SupplierTest) -> list[int]:
        if isinstance(demand, SplitTest) and (whole := self._suppliers_of(demand.whole)):
            # No other providers supply parts.
            return whole
        root = self._root.pattern.root
        return [
            *(id_ for id_, node in self._own.items() if demand.supplies(root, node.pattern, is_shared=False)),
            *(
                id_
                for id_, sharing in self._sharing.items()
                if demand.supplies(root, sharing.node.pattern, is_shared=True)
            ),
        ]

    def _node(self, provider_id: int) -> Node:
        return self._own[provider_id] if provider_id < 0 else self._sharing[provider_id].node

    def path(self, provider_id: int) -> tuple[int, ...]:
        """Return the ids from the provider's root down to itself."""
        if provider_id >= 0:
            return self._sharing[provider_id].path
        if not self._paths:
            path: tuple[int, ...] = ()
            for id_, node in self._own.items():
                path = self._paths[id_] = (*path[: node.level - 1], id_)
        return self._paths[provider_id]

    def position(self, provider_id: int) -> int:
        """Return a number that is equal for providers of the tree which a symmetry of the tree exchanges.

        The symmetry keeps patterns and amounts, so these providers have equal candidates: for example, equal
        children of one parent without children of their own. `exceptions` are not regarded.
        """
        return self._positions.get(provider_id, provider_id)

    @cached_property
    def _positions(self) -> Mapping[int, int]:
        shapes: dict[tuple[Node, tuple[int, ...]], int] = {}
        shape_of: dict[int, int] = {}
        shapes_of_children: dict[int, list[int]] = {}
        for id_ in reversed(self._own):
            shape = self._own[id_], tuple(sorted(shapes_of_children.pop(id_, ())))
            shape_of[id_] = shapes.setdefault(shape, len(shapes))
            for parent in self.path(id_)[-2:-1]:
                shapes_of_children.setdefault(parent, []).append(shape_of[id_])
        # Parents precede their children. The first provider at a position is its number.
        first: dict[tuple[int | None, int], int] = {}
        positions: dict[int, int] = {}
        for id_ in self._own:
            parent_position = next((positions[parent] for parent in self.path(id_)[-2:-1]), None)
            positions[id_] = first.setdefault((parent_position, shape_of[id_]), id_)
        return positions

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        """Return the numbers of the conditions that the provider meets."""
        pattern = self._node(provider_id).pattern
        return frozenset(bit for bit in range(pattern.bit_length()) if pattern >> bit & 1)

    def max_allocatable(self, provider_id: int, resource_class: str) -> int:
        """Return the largest amount of one of the summed classes that a new allocation can get."""
        exception = self._exceptions.get((provider_id, resource_class))
        if exception is not None:
            return exception
        return self._node(provider_id).allocatable[self._columns[resource_class]]

    def units(self, provider_id: int, resource_class: str) -> UnitLimits:
        """Return the amounts that a new allocation of one of the split classes can get."""
        held = self._node(provider_id).held[self._split_classes.index(resource_class)]
        return self._part_limits(held)

    def uuid(self, provider_id: int) -> str:
        """Return a text in place of the uuid: the order is the same in the tree, if it matters."""
        return f"{self._node(provider_id).position:010}"
