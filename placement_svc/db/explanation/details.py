"""The providers that an explanation names, with what they have of what is requested."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sqlalchemy import any_, func, or_, select

from placement_svc.db.explanation.amounts import nearest_allowed
from placement_svc.db.explanation.patterns import inventory_row, provider_row, read_pattern, select_patterns
from placement_svc.db.filters import is_any
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.db.search.trees import PROVIDER_SIZE
from placement_svc.db.tables import aggregates, inventories, provider_aggregates, resource_providers, traits
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import AmountCondition, Filter, FilterCode
from placement_svc.domain.explanation.supplier_tests import Bits
from placement_svc.domain.inventory import HeldAmount, UnitLimits


@dataclass(frozen=True, kw_only=True)
class ExplainedProvider:
    """A provider with its traits and aggregates, and its inventories by class id."""

    id: int
    uuid: str
    name: str
    root_id: int
    root_uuid: str
    pattern: int
    traits: list[str]
    aggregates: list[str]
    inventories: dict[int, HeldAmount] = field(default_factory=dict)

    def best(self, each: Filter) -> int | None:
        """Return the amount that is nearest to the requested one, for a filter on units or amounts."""
        assert isinstance(each.condition, AmountCondition)
        held = self.inventories[each.condition.class_id]
        match each.code:
            case FilterCode.UNIT:
                return nearest_allowed(each.condition.amount, [held.units])
            case FilterCode.CAPACITY:
                return held.capacity
        return held.free

    def gap(self, failing: Iterable[Filter]) -> Fraction:
        """Return the sum of (wanted - best) / wanted over failing amounts.

        A missing inventory, and one that allows no amount, count as 1.
        """
        gap = Fraction(0)
        for each in failing:
            if each.code is FilterCode.INVENTORY:
                gap += 1
            elif each.has_gap and each.wanted is not None:
                best = self.best(each)
                gap += 1 if best is None else Fraction(each.wanted - best, each.wanted)
        return gap


def read_details(
    reader: InventoryReader,
    bits: Bits,
    root_ids: Collection[int],
    provider_ids: Collection[int],
    memory: MemoryBudget,
) -> Mapping[int, ExplainedProvider]:
    """Return these providers and those of these trees, by id: two statements."""
    details: dict[int, ExplainedProvider] = {}
    for provider in _read_providers(reader, bits, root_ids, provider_ids):
        memory.reserve(PROVIDER_SIZE)
        details[provider.id] = provider
    class_ids = {each.class_id for each in bits if isinstance(each, AmountCondition)}
    for provider_id, class_id, held in _read_inventories(reader, details, class_ids):
        details[provider_id].inventories[class_id] = held
    return details


def _read_providers(
    reader: InventoryReader, bits: Bits, root_ids: Collection[int], provider_ids: Collection[int]
) -> Iterator[ExplainedProvider]:
    """Yield these providers and those of these trees, without their inventories."""
    root = resource_providers.alias("root")
    in_scope, inventories_in_scope = (
        or_(is_any(root_id, root_ids), is_any(provider_id, provider_ids))
        for root_id, provider_id in (
            (provider_row.c.root_id, provider_row.c.id),
            (inventory_row.c.root_id, inventory_row.c.provider_id),
        )
    )
    trait_names = select(traits.c.name).where(traits.c.id == any_(provider_row.c.trait_ids))
    held_aggregates = (
        select(aggregates.c.uuid)
        .join(provider_aggregates, provider_aggregates.c.aggregate_id == aggregates.c.id)
        .where(provider_aggregates.c.provider_id == provider_row.c.id)
    )
    query = (
        select_patterns(bits, inventories_in_scope)
        .join(root, root.c.id == provider_row.c.root_id)
        .add_columns(
            provider_row.c.uuid,
            provider_row.c.name,
            root.c.uuid,
            func.array(trait_names.order_by(traits.c.name).scalar_subquery()),
            func.array(held_aggregates.order_by(aggregates.c.uuid).scalar_subquery()),
        )
        .where(in_scope)
    )
    rows: Iterable[Any] = reader.execute(query)
    for id_, root_id, pattern, uuid, name, root_uuid, trait_names_, aggregate_uuids in rows:
        yield ExplainedProvider(
            id=id_,
            uuid=uuid,
            name=name,
            root_id=root_id,
            root_uuid=root_uuid,
            pattern=read_pattern(pattern),
            traits=trait_names_,
            aggregates=aggregate_uuids,
        )


def _read_inventories(
    reader: InventoryReader, provider_ids: Collection[int], class_ids: Collection[int]
) -> Iterator[tuple[int, int, HeldAmount]]:
    """Yield the ids of a provider and of a class, and what the provider has of it."""
    columns = (*UnitLimits._fields, "capacity", "used")
    rows = reader.execute(
        select(
            inventories.c.provider_id, inventories.c.resource_class_id, *map(inventories.c.get, columns)
        ).where(
            is_any(inventories.c.provider_id, provider_ids),
            is_any(inventories.c.resource_class_id, class_ids),
        )
    )
    for provider_id, class_id, min_unit, max_unit, step_size, capacity, used in rows:
        units = UnitLimits(min_unit, max_unit, step_size)
        yield provider_id, class_id, HeldAmount(units, max(capacity, 0), max(capacity - used, 0))
