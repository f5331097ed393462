"""The provider trees of the anchors: everything that combining and the summaries need of them."""

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection

from placement_svc.db.filters import ids_text
from placement_svc.db.prepared import FixedStatement, fetch_rows
from placement_svc.db.search.ignored_consumers import NOTHING_FREED, FreedInventories
from placement_svc.db.search.list_texts import members
from placement_svc.db.search.tree_statements import (
    INVENTORIES,
    MAX_ALLOCATABLE,
    PROVIDERS,
    TREES,
    UNITS,
)
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.inventory import UnitLimits

MIN_TREES_FOR_THREAD = 100
"""The number of trees from which on a thread fetches during the combining what that does not need."""

PROVIDER_SIZE = 1000
"""Bytes of memory that a provider needs, with its inventories, traits and path, approximately."""

USUAL_LEVELS = 10
"""The levels of a tree up to which `PROVIDER_SIZE` includes the path of a provider."""

TreeProvider = tuple[int, str, int | None, int]
"""A provider of a tree, a plain tuple as there are thousands: id, uuid, parent_id, root_id."""

TreeRow = tuple[Any, ...]
"""A row of one of the `tree_statements`."""


class ClassInventories(NamedTuple):
    """The inventories of one resource class: the ids of the providers, and the amounts of each.

    An element of `amounts` is the text "capacity used". There are thousands of them but few distinct ones, so
    the reader converts each distinct text once.
    """

    resource_class: str
    provider_ids: list[int]
    amounts: list[str]


class TraitSet(NamedTuple):
    """The names of traits, and the ids of the providers that have exactly these; most hosts are alike."""

    names: list[str]
    provider_ids: list[int]


class Trees:
    """The providers of the trees that have been fetched so far.

    It is the `ProviderLookup` of the combining. `summary_classes` are the resource classes that the
    summaries show (None: all), `summed_classes` those whose `max_allocatable` is needed, and
    `splittable_classes` those whose `units` are. `freed` are the inventories that replace the stored ones, as
    the request ignores the allocations of consumers.
    """

    def __init__(
        self,
        summary_classes: Collection[str] | None,
        summed_classes: Collection[str],
        memory: MemoryBudget,
        freed: FreedInventories = NOTHING_FREED,
        splittable_classes: Collection[str] = (),
    ) -> None:
        self.memory = memory
        self._freed = freed
        self.summary_classes = summary_classes
        self.summed_classes = summed_classes
        self.splittable_classes = splittable_classes
        self.providers: dict[int, TreeProvider] = {}
        """All providers, by id."""
        self.uuids: dict[int, str] = {}
        """The uuids of all providers, by id."""
        self.inventories: list[ClassInventories] = []
        """All inventories of `summary_classes`; a class is listed again for each batch of trees."""
        self.trait_sets: list[TraitSet] = []
        """The traits of each provider that has any."""
        self._trait_ids: dict[int, frozenset[int]] = {}
        self._max_allocatable: dict[tuple[int, str], int] = {}
        self._units: dict[tuple[int, str], UnitLimits] = {}
        self._paths: dict[int, tuple[int, ...]] = {}

    def fetch_rows(
        self, connection: Connection, statement: FixedStatement, root_ids: Sequence[int]
    ) -> list[TreeRow]:
        """Return the rows of one of the `tree_statements` about the trees with these roots.

        Its cost is proportional to the size of the trees: it uses the indexes on root_id.
        """
        values = {
            "root_ids": ids_text(root_ids),
            "all_classes": self.summary_classes is None,
            "summary_classes": sorted(self.summary_classes or ()),
        }
        return fetch_rows(connection, statement, values)

    def add(self, rows: Iterable[TreeRow]) -> None:
        """Add what rows have."""
        for _, resource_class, ids_of_row, text, trait_ids, trait_names in rows:
            provider_ids: list[int] = members(ids_of_row)
            if resource_class is not None:
                amounts = self._without_ignored(resource_class, provider_ids, text.split(","))
                self.inventories.append(ClassInventories(resource_class, provider_ids, amounts))
                continue
            self._add_providers(provider_ids, text)
            if trait_ids:
                self._trait_ids.update(dict.fromkeys(provider_ids, frozenset(trait_ids)))
                self.trait_sets.append(TraitSet(trait_names, provider_ids))

    def _add_providers(self, ids: Sequence[int], text: str) -> None:
        """Add the providers of a row; the text has their uuids, parents and roots."""
        self.memory.reserve(PROVIDER_SIZE * len(ids))
        uuids_text, parents_text, roots_text = text.split(";")
        uuids = uuids_text.split(",")
        providers = zip(ids, uuids, members(parents_text), members(roots_text), strict=True)
        self.providers.update(zip(ids, providers, strict=True))
        self.uuids.update(zip(ids, uuids, strict=True))

    def fetch_amounts(self, connection: Connection, root_ids: Sequence[int]) -> None:
        """Fetch the amounts of `summed_classes` and `splittable_classes` that can be allocated.

        One statement if there are `summed_classes`, and one if there are `splittable_classes`. Their cost is
        proportional to the size of the trees.
        """
        if self.summed_classes:
            values = {"root_ids": ids_text(root_ids), "summed_classes": sorted(self.summed_classes)}
            for provider_id, name, max_allocatable in fetch_rows(connection, MAX_ALLOCATABLE, values):
                freed = self._freed.get(name, {}).get(provider_id)
                self._max_allocatable[provider_id, name] = freed.max_allocatable if freed else max_allocatable
        if self.splittable_classes:
            values = {"root_ids": ids_text(root_ids), "splittable_classes": sorted(self.splittable_classes)}
            for provider_id, name, *units in fetch_rows(connection, UNITS, values):
                freed = self._freed.get(name, {}).get(provider_id)
                limits = UnitLimits(*units)
                if freed:
                    limits = limits._replace(max_unit=freed.max_allocatable)
                self._units[provider_id, name] = limits

    def _without_ignored(
        self, resource_class: str, provider_ids: Sequence[int], amounts: list[str]
    ) -> list[str]:
        """Return the texts of `ClassInventories`, without the allocations of ignored consumers."""
        freed = self._freed.get(resource_class)
        if not freed:
            return amounts
        return [
            f"{freed[id_].capacity} {freed[id_].used}" if id_ in freed else text
            for id_, text in zip(provider_ids, amounts, strict=True)
        ]

    def path(self, provider_id: int) -> tuple[int, ...]:
        """Return the ids from the provider's root down to itself."""
        path = self._paths.get(provider_id)
        if path is None:
            path = self._paths[provider_id] = self._path(provider_id)
        return path

    def _path(self, provider_id: int) -> tuple[int, ...]:
        _, _, parent_id, root_id = self.providers[provider_id]
        if parent_id is None:
            return (provider_id,)
        if parent_id == root_id:
            return root_id, provider_id
        # A loop, because a tree can have more levels than Python allows calls.
        missing = [provider_id]
        while parent_id is not None and parent_id not in self._paths:
            missing.append(parent_id)
            parent_id = self.providers[parent_id][2]
        path = () if parent_id is None else self._paths[parent_id]
        for id_ in reversed(missing):
            path = self._paths[id_] = (*path, id_)
            if len(path) > USUAL_LEVELS:
                self.memory.reserve(8 * len(path))
        return path

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        """Return the ids of the provider's traits."""
        return self._trait_ids.get(provider_id, frozenset())

    def max_allocatable(self, provider_id: int, resource_class: str) -> int:
        """Return the largest amount of one of `summed_classes` that a new allocation can get."""
        return self._max_allocatable[provider_id, resource_class]

    def units(self, provider_id: int, resource_class: str) -> UnitLimits:
        """Return the amounts of one of `splittable_classes` that a new allocation can get."""
        return self._units[provider_id, resource_class]

    def uuid(self, provider_id: int) -> str:
        """Return the uuid of a provider."""
        return self.uuids[provider_id]


class TreeFetcher:
    """Fetches trees by one connection, which it may leave in use by a thread; a context that ends the thread.

    `combining_needs_providers` is whether combining needs the providers with their traits; it never needs the
    inventories. Before anything else uses the connection or the inventories, call `wait`, and before anything
    uses providers that combining does not need, `wait_for_providers`.
    """

    def __init__(self, connection: Connection, trees: Trees, combining_needs_providers: bool) -> None:
        self.trees = trees
        self._connection = connection
        self._combining_needs_providers = combining_needs_providers
        self._executor: Executor | None = None
        self._providers: Future[list[TreeRow]] | None = None
        self._inventories: Future[list[TreeRow]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def fetch(self, root_ids: Iterable[int]) -> None:
        """Fetch the trees with these roots, except those already fetched.

        If they are many, a thread fetches the providers, then the inventories, while the caller combines
        suppliers; if combining needs the providers, this waits for them.
        """
        new = [id_ for id_ in root_ids if id_ not in self.trees.providers]
        if not new:
            return
        self.trees.fetch_amounts(self._connection, new)
        if len(new) < MIN_TREES_FOR_THREAD:
            self.trees.add(self.trees.fetch_rows(self._connection, TREES, new))
            return
        self._providers = self._start(PROVIDERS, new)
        self._inventories = self._start(INVENTORIES, new, after=self._providers)
        if self._combining_needs_providers:
            self.wait_for_providers()

    def is_fetching(self) -> bool:
        """Return whether a thread still uses the connection."""
        return self._inventories is not None and not self._inventories.done()

    def wait_for_providers(self) -> None:
        """Wait until a thread has fetched the providers, and add them."""
        if self._providers is not None:
            self.trees.add(self._providers.result())
            self._providers = None

    def wait(self) -> None:
        """Wait until no thread uses the connection, and add what it has fetched."""
        self.wait_for_providers()
        if self._inventories is not None:
            self.trees.add(self._inventories.result())
            self._inventories = None

    def _start(
        self, statement: FixedStatement, root_ids: Sequence[int], after: Future[list[TreeRow]] | None = None
    ) -> Future[list[TreeRow]]:
        """Fetch rows in a thread; after the fetch `after`, whose error is this one's error too."""

        def fetch() -> list[TreeRow]:
            if after is not None:
                after.result()
            return self.trees.fetch_rows(self._connection, statement, root_ids)

        self._executor = self._executor or ThreadPoolExecutor(1)
        # In this context, so that the statement counts in the statistics of this request.
        return self._executor.submit(copy_context().run, fetch)
