"""The trees among which a search places consumers, read in batches as they are needed."""

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection

from placement_svc.db.placing.anchors import AnchorBatches, OrderedBatches, UnorderedBatches
from placement_svc.db.placing.stored_rule import StoredRule
from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.db.search.criteria_builder import resolve_criteria
from placement_svc.db.search.ignored_consumers import read_freed_inventories
from placement_svc.db.search.ordered.anchors import AnchorSource
from placement_svc.db.search.random_root import random_root_uuid
from placement_svc.db.search.serving import served_root_ids
from placement_svc.db.search.sharing import find_shared_supplies, supplies_of_class
from placement_svc.db.search.simulated_suppliers import (
    SimulatedSuppliers,
    read_suppliers,
    shuffled_suppliers,
    suppliers_by_uuid,
)
from placement_svc.domain.combining.candidates import Candidate
from placement_svc.domain.combining.ordering import SupplierFacts
from placement_svc.domain.combining.split_suppliers import divided
from placement_svc.domain.execution import request_stats
from placement_svc.domain.groups import CandidatesRequest, OrderMethod
from placement_svc.domain.placing.tree_orders import Key
from placement_svc.domain.simulated_claims.amounts import RootSuppliers

MAX_ROUNDED = 32
"""The largest number of trees that is rounded up: that of the largest batch of requests."""


class PlacementTrees:
    """The trees of one search: those that it has read, and those that it can still read.

    Their roots are loaded into `rule`. With `is_repeatable`, a search without `order_by` always starts at the
    same trees, instead of a random one. The first batch has about `limit` trees.
    """

    def __init__(
        self,
        connection: Connection,
        request: CandidatesRequest,
        options: SearchOptions,
        *,
        rule: StoredRule | None,
        is_repeatable: bool,
        limit: int,
    ) -> None:
        self._connection = connection
        self._options = options
        self._deadline, self._memory = options.deadline, options.memory
        self._rule = rule
        self._is_repeatable = is_repeatable
        request = _in_order_of_claims(request, is_repeatable=is_repeatable)
        self._freed = read_freed_inventories(
            connection, request.ignore_consumer, self._deadline, self._memory
        )
        self.criteria = resolve_criteria(connection, request, one_provider_per_tree=False, freed=self._freed)
        self._shared_supplies = find_shared_supplies(connection, self.criteria, self._deadline, self._memory)
        self._sharing_roots = {
            supply.root_id for supplies in self._shared_supplies.values() for supply in supplies
        }
        packs = self.criteria.ordering is not None and self.criteria.ordering.packs
        self._packed = supplies_of_class(self.criteria, self._shared_supplies) if packs else {}
        """The sharing providers whose claims make other trees better, until these have been read."""
        self.suppliers = SimulatedSuppliers()
        """The suppliers around the roots that have been read."""
        self.roots: list[RootSuppliers] = []
        """The roots that have been read."""
        self._numbers: dict[int, int] = {}
        """The places in `roots` by the ids of the roots."""
        self.facts = SupplierFacts()
        """What an order depends on, of the roots and suppliers that have been read."""
        self.text_of: Callable[[int], str] = self.facts.tie_breakers.__getitem__
        """What decides between roots of the same rank, by the id of a root."""
        self._batches = self._anchor_batches(limit)
        self.reserved_by_batches = 0
        """The bytes of the memory budget that `read_next` and `read_improved` have reserved."""

    @property
    def has_sharing_supplier(self) -> bool:
        """Whether a sharing provider can supply a demand."""
        return bool(self._shared_supplies)

    @property
    def is_complete(self) -> bool:
        """Whether all trees have been read."""
        return self._batches.is_complete

    @property
    def horizon(self) -> Key:
        """A lower bound of the keys of all trees that have not been read; `LAST_KEY` without an order."""
        return self._batches.horizon

    def read_among(self, root_ids: Collection[int]) -> None:
        """Read the trees with these roots; they are not read again."""
        self._read(self._batches.among(root_ids))

    def read_remaining(self) -> None:
        """Read all trees that are left."""
        self._read(self._batches.remaining())

    def read_improved(self, candidate: Candidate) -> Sequence[RootSuppliers]:
        """Read the trees whose keys the claim of a candidate has made better, and return their roots.

        With `pack`, these are the trees that a sharing provider of the class serves, which has less free now.
        """
        _, supplier_ids = divided(self.criteria.rules.demands, candidate)
        claimed = [self._packed.pop(id_) for id_ in self._packed.keys() & set(supplier_ids)]
        if not claimed or self.is_complete:
            return []
        aggregate_ids = {id_ for supply in claimed for id_ in supply.aggregate_ids}
        with self._batch():
            root_ids = served_root_ids(self._connection, aggregate_ids)
            return self._read(self._batches.among(root_ids))

    def read_next(self, placed: int) -> Sequence[RootSuppliers] | None:
        """Read a batch, and return its roots, None if none is left; so many consumers have been placed."""
        with self._batch():
            anchors = self._batches.next(placed)
            return None if anchors is None else self._read(anchors)

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """Count what the memory budget reserves in the block as that of batches."""
        reserved = self._memory.reserved
        yield
        self.reserved_by_batches += self._memory.reserved - reserved

    def around(self, root_ids: frozenset[int]) -> Sequence[RootSuppliers]:
        """Return the roots that have been read and around which there can be candidates with these roots."""
        if not root_ids.isdisjoint(self._sharing_roots):
            # Candidates of sharing providers alone can be around any root.
            return self.roots
        return [
            self.roots[number]
            for number in sorted(self._numbers[id_] for id_ in root_ids & self._numbers.keys())
        ]

    def supplier_uuids(self) -> list[str]:
        """Return the uuids of all suppliers that have been read."""
        return [self.suppliers.uuids[id_] for id_ in self.suppliers.read_ids]

    def _anchor_batches(self, limit: int) -> AnchorBatches:
        if self.criteria.ordering is None:
            return UnorderedBatches(
                self._connection,
                self.criteria,
                self._shared_supplies,
                start=None if self._is_repeatable else random_root_uuid(self._connection),
                limit=limit if self._is_repeatable else _rounded(limit),
                deadline=self._deadline,
                memory=self._memory,
            )
        source = AnchorSource(
            self._connection,
            self.criteria,
            self.criteria.ordering,
            self._shared_supplies,
            self._deadline,
            self._memory,
            limit,
            self._freed,
        )
        self.facts, self.text_of = source.facts, source.text_of
        return OrderedBatches(source, limit=limit)

    def _read(self, anchors: Sequence[Anchor]) -> Sequence[RootSuppliers]:
        """Read the suppliers of further anchors, and return the roots with them."""
        request_stats.current().anchors += len(anchors)
        read_suppliers(
            self._connection,
            self.criteria,
            anchors,
            self._options,
            known=self.suppliers,
            other_root_ids=self._sharing_roots,
            freed=self._freed,
        )
        if self._rule is not None:
            root_ids = self._sharing_roots.union(anchor.id for anchor in anchors)
            self._rule.load_roots(self._connection, root_ids)
        if self._is_repeatable:
            roots = suppliers_by_uuid(anchors, self.suppliers.uuids, self._deadline)
        else:
            roots = [shuffled_suppliers(anchor, self._deadline, self._memory) for anchor in anchors]
            random.shuffle(roots)
        self._numbers.update((root.id, number) for number, root in enumerate(roots, len(self.roots)))
        self.roots += roots
        return roots


def _rounded(tree_count: int) -> int:
    """Return the next power of two of the number of trees of a batch, and a larger number unchanged.

    So batches of different sizes have few different statements, which stay prepared.
    """
    return tree_count if tree_count > MAX_ROUNDED else 1 << (tree_count - 1).bit_length()


def _in_order_of_claims(request: CandidatesRequest, *, is_repeatable: bool) -> CandidatesRequest:
    """Return a request with a random order of trees that the client leaves open, so that claims differ.

    Without `preferred`, a search that starts at a random root suffices. A repeatable search has no random
    order.
    """
    order_by = request.order_by
    if is_repeatable:
        is_random = order_by is not None and order_by.method is OrderMethod.RANDOM
        return request.without_order if is_random else request
    return request.in_random_order if request.preferred and order_by is None else request
