"""Why a request has no candidates: `kind` (`docs/spec/extensions.md 3.4`)."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import func, not_, select

from placement_svc.db.explanation.cloud import Cloud, SharingProvider
from placement_svc.db.explanation.combinations import Combinations
from placement_svc.db.explanation.counts import RootCounts
from placement_svc.db.explanation.patterns import (
    inventory_row,
    provider_row,
    read_pattern,
    select_free,
    select_patterns,
)
from placement_svc.db.filters import free_amount, is_any
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.db.tables import inventories
from placement_svc.domain.explanation.filters import POSSIBLE_CODES, AmountCondition, FilterCode, GroupFilters
from placement_svc.domain.explanation.root_tests import GroupTest
from placement_svc.domain.explanation.supplier_tests import SupplierTest


class Kind(StrEnum):
    """The reasons why there are no candidates."""

    IMPOSSIBLE = "impossible"
    FRAGMENTED = "fragmented"
    FULL = "full"
    COMBINATION = "combination"
    FILTERED = "filtered"


def find_kind(reader: InventoryReader, counts: RootCounts, combinations: Combinations) -> Kind:
    """Return why a request without candidates has none: at most two statements."""
    for tests in counts.tests:
        if not counts.passing([tests.test(tests.mask(tests.group.having(POSSIBLE_CODES)))]):
            return Kind.IMPOSSIBLE
    unused_tests = counts.tests_if_unused()
    unused_roots = counts.meeting_root_filters(counts.passing(unused_tests))
    if combinations.any_if_unused(unused_roots, unused_tests):
        fragmented = _is_enough_free(reader, counts, unused_tests)
        return Kind.FRAGMENTED if fragmented else Kind.FULL
    can_pass = all(counts.meeting_root_filters(counts.passing([test])) for test in unused_tests)
    return Kind.COMBINATION if can_pass else Kind.FILTERED


def _is_enough_free(reader: InventoryReader, counts: RootCounts, tests: Sequence[GroupTest]) -> bool:
    """Return whether the free amounts of the suppliers would suffice if they were on one provider."""
    wanted = _wanted(counts.groups)
    free = Counter[int]()
    demands = list(_demands_by_class(counts.groups, tests))
    for root_pattern, pattern, class_id, amount in _free_in_trees(reader, counts.cloud, wanted):
        root, own = read_pattern(root_pattern), read_pattern(pattern)
        if any(demand.supplies(root, own, is_shared=False) for id_, demand in demands if id_ == class_id):
            free[class_id] += int(amount)
    for sharing, class_id, amount in _free_of_sharing(reader, counts.cloud, wanted):
        of_class = [demand for id_, demand in demands if id_ == class_id]
        if any(_can_supply(counts.cloud, sharing, demand) for demand in of_class):
            free[class_id] += amount
    return all(free[class_id] >= amount for class_id, amount in wanted.items())


def _wanted(groups: Iterable[GroupFilters]) -> Counter[int]:
    """Return the amounts that all groups request together, by the id of the class."""
    wanted = Counter[int]()
    for group in groups:
        for each in group.amounts:
            assert isinstance(each.condition, AmountCondition)
            wanted[each.condition.class_id] += each.condition.amount
    return wanted


def _demands_by_class(
    groups: Sequence[GroupFilters], tests: Sequence[GroupTest]
) -> Iterator[tuple[int, SupplierTest]]:
    """Yield the id of each class that a group requests, with the test of its supplier."""
    for group, test in zip(groups, tests, strict=True):
        for number, each in enumerate(group.having([FilterCode.INVENTORY])):
            assert isinstance(each.condition, AmountCondition)
            yield each.condition.class_id, test.demands[0 if group.suffix else number]


def _can_supply(cloud: Cloud, sharing: SharingProvider, demand: SupplierTest) -> bool:
    """Return whether a sharing provider passes the test at some covered root."""
    return any(
        (
            sharing.root_id in root.root_ids
            and demand.supplies(root.pattern.root, sharing.node.pattern, is_shared=False)
        )
        or (
            sharing.aggregate_ids & root.aggregate_ids
            and demand.supplies(root.pattern.root, sharing.node.pattern, is_shared=True)
        )
        for root in cloud.roots
    )


def _free_in_trees(reader: InventoryReader, cloud: Cloud, class_ids: Collection[int]) -> Iterable[Any]:
    """Return what is free by pattern of the root, pattern and class, apart from sharing providers."""
    patterns = select_patterns(cloud.layout.bits, cloud.scope.covers(inventory_row.c.root_id)).where(
        cloud.scope.covers(provider_row.c.root_id)
    )
    is_serving = is_any(inventories.c.provider_id, [each.id for each in cloud.serving])
    return reader.execute(select_free(patterns, class_ids).where(not_(is_serving)))


def _free_of_sharing(
    reader: InventoryReader, cloud: Cloud, class_ids: Collection[int]
) -> Iterator[tuple[SharingProvider, int, int]]:
    """Yield what is free of each sharing provider that serves a covered root, by the id of the class."""
    by_id = {each.id: each for each in cloud.serving}
    if not by_id:
        return
    free = func.greatest(free_amount(inventories), 0)
    rows = reader.execute(
        select(inventories.c.provider_id, inventories.c.resource_class_id, free).where(
            is_any(inventories.c.provider_id, by_id), is_any(inventories.c.resource_class_id, class_ids)
        )
    )
    for provider_id, class_id, amount in rows:
        yield by_id[provider_id], class_id, amount
