"""Suppliers that consist of several providers (`docs/spec/extensions.md 2.8`)."""

from collections.abc import Sequence
from typing import NamedTuple

from placement_svc.domain.demands import Demand

PART_SIZE = 200
"""Bytes of memory that a part of a split needs, approximately."""


class SupplierPart(NamedTuple):
    """The amount that a provider supplies of a class that several providers supply."""

    provider_id: int
    amount: int


class SplitSupplier(int):
    """Several providers that supply one demand together, in place of the id of a single provider.

    The number only tells splits apart; no provider has it. The parts are in the order of the uuids of their
    providers.
    """

    parts: tuple[SupplierPart, ...]

    def __new__(cls, number: int, parts: tuple[SupplierPart, ...]) -> "SplitSupplier":
        """Return a split into parts."""
        split = super().__new__(cls, number)
        split.parts = parts
        return split


def provider_ids_of(supplier: int) -> Sequence[int]:
    """Return the ids of the providers of a supplier."""
    return (
        [part.provider_id for part in supplier.parts] if isinstance(supplier, SplitSupplier) else [supplier]
    )


def divided(demands: Sequence[Demand], suppliers: Sequence[int]) -> tuple[Sequence[Demand], Sequence[int]]:
    """Return a candidate without splits: each part becomes a demand of its own, with its provider."""
    if not any(isinstance(supplier, SplitSupplier) for supplier in suppliers):
        return demands, suppliers
    pairs: list[tuple[Demand, int]] = []
    for demand, supplier in zip(demands, suppliers, strict=True):
        if isinstance(supplier, SplitSupplier):
            [(name, _)] = demand.resources
            pairs += [(Demand(demand.suffix, ((name, part),)), id_) for id_, part in supplier.parts]
        else:
            pairs.append((demand, supplier))
    return [demand for demand, _ in pairs], [id_ for _, id_ in pairs]
