"""Searches the candidates of several consumers in one snapshot (`docs/spec/extensions.md 5.1`)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from placement_svc.db import consumers
from placement_svc.db.placing.stored_rule import StoredRule
from placement_svc.db.placing.trees import PlacementTrees
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.allocations import check_generations
from placement_svc.domain.combining.candidates import combine_around
from placement_svc.domain.combining.interfaces import TreeSuppliers
from placement_svc.domain.combining.split_suppliers import divided
from placement_svc.domain.demands import allocations_of, mappings_of
from placement_svc.domain.errors import NoCandidates
from placement_svc.domain.placing.placements import Placement, PlacementRequest, Placements, Root
from placement_svc.domain.placing.placer import Placed, Placer, Unread
from placement_svc.domain.placing.ranked_order import RankedOrder
from placement_svc.domain.placing.rule import PlacementRule, RuleRank
from placement_svc.domain.placing.tree_orders import Rotation, TreeOrder
from placement_svc.domain.simulated_claims.amounts import RootSuppliers, amounts_of
from placement_svc.domain.simulated_claims.most_claims import MostClaims


@dataclass(frozen=True, kw_only=True)
class PlacementSearchOptions:
    """How one snapshot is searched.

    With `checks_generations`, outdated generations are an error before the search; without, only if some
    consumers cannot be placed. With `is_repeatable`, a search without `order_by` always starts at the same
    root instead of a random one. `spare_trees` are fetched besides those that the consumers need.
    """

    search: SearchOptions
    rule: StoredRule | None = None
    checks_generations: bool = False
    is_repeatable: bool = False
    spare_trees: int = 0

    def with_own_memory(self) -> "PlacementSearchOptions":
        """Return these options with a memory budget of which nothing is reserved."""
        return replace(self, search=self.search.with_own_memory())


def find_placements(
    connection: Connection, wanted: PlacementRequest, options: PlacementSearchOptions
) -> Placements:
    """Return the placements of at least `wanted.min_count` consumers, as many as possible.

    Raises `NoCandidates` if there are fewer, `ConcurrentUpdate` for an outdated consumer generation, and
    `Invalid` for an unknown trait or resource class. Three statements for one batch of trees, one more if
    a provider shares, one if consumers are moved, and one if some are not placed; two more for each further
    batch, of which there are at most three without an order. With a rule, a few more read its data, and two
    more read the roots that it favors.
    """
    placements, _ = find_placements_and_suppliers(connection, wanted, options)
    return placements


def find_placements_and_suppliers(
    connection: Connection, wanted: PlacementRequest, options: PlacementSearchOptions
) -> tuple[Placements, list[str]]:
    """Return what `find_placements` returns, and the uuids of the providers among which it has chosen."""
    options = options.with_own_memory()
    search = _PlacementSearch(connection, wanted, options)
    if options.checks_generations:
        _check_generations(connection, wanted)
    placed = search.run()
    if len(placed) < len(wanted.consumers) and not options.checks_generations:
        # The claim checks only the consumers that are placed.
        _check_generations(connection, wanted)
    if len(placed) < wanted.min_count:
        raise _no_candidates(connection, wanted, options, len(placed))
    return search.placements(placed), search.trees.supplier_uuids()


def _no_candidates(
    connection: Connection, wanted: PlacementRequest, options: PlacementSearchOptions, placeable: int
) -> NoCandidates:
    """Return the error for consumers of whom only `placeable` can be placed."""
    group = None
    if options.rule is not None:
        without = _PlacementSearch(connection, wanted, replace(options.with_own_memory(), rule=None))
        group = options.rule.group if len(without.run()) >= wanted.min_count else None
    return NoCandidates(
        placeable=placeable, wanted=wanted.min_count, explanation=wanted.explanation, group=group
    )


def _check_generations(connection: Connection, wanted: PlacementRequest) -> None:
    uuids = [consumer.consumer_uuid for consumer in wanted.consumers]
    check_generations(wanted.consumers, consumers.generations(connection, uuids))


class _PlacementSearch:
    """One search: places consumers, and reads further trees until all are placed or no tree is left."""

    def __init__(
        self, connection: Connection, wanted: PlacementRequest, options: PlacementSearchOptions
    ) -> None:
        self._options = options
        self._deadline, self._memory = options.search.deadline, options.search.memory
        self._consumers = wanted.consumers
        if options.rule is not None:
            options.rule.start(connection, [consumer.consumer_uuid for consumer in wanted.consumers])
        self.trees = PlacementTrees(
            connection,
            wanted.request,
            options.search,
            rule=options.rule,
            is_repeatable=options.is_repeatable,
            limit=len(wanted.consumers) + options.spare_trees,
        )
        self._criteria, self._suppliers = self.trees.criteria, self.trees.suppliers

    def run(self) -> Sequence[Placed]:
        """Place the consumers one after the other, and return the placements of the first ones."""
        rule = self._options.rule
        if rule is not None:
            if rule.favored_ids:
                self.trees.read_among(rule.favored_ids)
            # Candidates of sharing providers alone have the same roots around any tree.
            if self.trees.has_sharing_supplier and (rule.ranks_roots or rule.tries_domains):
                self.trees.read_remaining()
            if rule.tries_domains:
                return self._place_in_one_domain(rule)
        return self._place(self._placer(), self.trees.roots)

    def _place_in_one_domain(self, rule: PlacementRule) -> Sequence[Placed]:
        """Try the domains in the order of their best candidates; return the first run that places most.

        A run reads further trees as it needs them, so it has read all of its domain when it fails. A domain
        that cannot take more than another one has taken is not tried: in a cloud of like hosts, those are
        nearly all.
        """
        chooser = self._placer()
        chooser.add(self.trees.roots)
        most = MostClaims(self._criteria.rules, self._suppliers.inventories, self._deadline, self._memory)
        best: list[Placed] = []
        count = len(self._consumers)
        while len(best) < count and (first := self._next(chooser, chooser.peek, 0)) is not None:
            root_count = len(self.trees.roots)
            reserved = self._memory.reserved - self.trees.reserved_by_batches
            roots = self.trees.around(frozenset(rule.begin_run(first.root_ids)))
            if not best or most.bound(roots) > len(best):
                placed = self._place(self._placer(), roots)
                best = max(best, placed, key=len)
                self._release(placed)
                self._memory.release(self._memory.reserved - self.trees.reserved_by_batches - reserved)
            rule.end_run()
            chooser.add(self.trees.roots[root_count:])
        return best

    def _release(self, placed: Iterable[Placed]) -> None:
        """Release the amounts of the placements of a run."""
        ordering = self._criteria.ordering
        ordering_class = ordering.resource_class if ordering else None
        for each in placed:
            amounts = amounts_of(self._criteria.rules.demands, each.candidate)
            self._suppliers.inventories.claim(amounts, -1)
            for (provider_id, resource_class), amount in amounts.items():
                if resource_class == ordering_class:
                    self.trees.facts.free[provider_id] += amount

    def placements(self, placed: Sequence[Placed]) -> Placements:
        """Return placements with uuids instead of ids."""
        return Placements([self._placement(number, each) for number, each in enumerate(placed)])

    def _placement(self, number: int, placed: Placed) -> Placement:
        uuids, names = self._suppliers.uuids, self._suppliers.names
        demands, ids = divided(self._criteria.rules.demands, placed.candidate)
        supplier_uuids = [uuids[id_] for id_ in ids]
        root_id = min(placed.root_ids, key=uuids.__getitem__)
        return Placement(
            claim=replace(self._consumers[number], allocations=allocations_of(demands, supplier_uuids)),
            mappings=mappings_of(demands, supplier_uuids),
            root=Root(uuids[root_id], names[root_id]),
            root_ids=placed.root_ids,
        )

    def _placer(self) -> Placer:
        return Placer(
            self._criteria.rules,
            self._suppliers.inventories,
            sharing_ids=self._suppliers.sharing_ids,
            order=self._tree_order(),
            rule=self._options.rule,
            deadline=self._deadline,
            memory=self._memory,
        )

    def _place(self, placer: Placer, roots: Iterable[RootSuppliers]) -> list[Placed]:
        """Place as many consumers as possible, in their order; fetch further trees if they are needed."""
        placer.add(roots)
        found: list[Placed] = []
        while len(found) < len(self._consumers):
            placed = self._next(placer, placer.place, len(found))
            if placed is None:
                break
            found.append(placed)
            if len(found) < len(self._consumers):
                placer.add(self._usable(self.trees.read_improved(placed.candidate)))
        return found

    def _next(
        self, placer: Placer, find: Callable[[Unread | None], Placed | None], placed: int
    ) -> Placed | None:
        """Return what `find` returns; fetch further trees for the placer while it finds nothing.

        So many consumers have been placed.
        """
        while True:
            unread = self._unread()
            found = find(unread)
            if found is not None or unread is None:
                return found
            roots = self.trees.read_next(placed)
            if roots is None:
                return None
            placer.add(self._usable(roots))

    def _usable(self, roots: Sequence[RootSuppliers]) -> Sequence[RootSuppliers]:
        """Return those of the roots that the rule does not exclude, until the end of the run."""
        rule = self._options.rule
        if rule is None or self.trees.has_sharing_supplier:
            return roots
        return [root for root in roots if rule.rank(frozenset([root.id])) is not None]

    def _unread(self) -> Unread | None:
        """Return what precedes all trees that have not been read; None if the next consumer can use none."""
        if self.trees.is_complete:
            return None
        rule = self._options.rule
        rank: RuleRank | None = ()
        # A tree that has not been read can have candidates of sharing providers, which have.
        if rule is not None and not self.trees.has_sharing_supplier:
            rank = rule.best_unread()
        return None if rank is None else (rank, self.trees.horizon)

    def _tree_order(self) -> TreeOrder:
        rules, inventories = self._criteria.rules, self._suppliers.inventories
        deadline, memory = self._deadline, self._memory

        def to_tree(root: RootSuppliers) -> TreeSuppliers:
            return TreeSuppliers(root.id, rules, root.suppliers, inventories, deadline, memory)

        if self._criteria.ordering is None:
            return Rotation(lambda root: combine_around(to_tree(root)))
        return RankedOrder(
            self._criteria.ordering,
            self.trees.facts,
            self.trees.text_of,
            to_tree,
            may_split=bool(rules.splittable),
        )
