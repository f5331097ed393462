"""The reason for a refusal: the first rule that the claims break, in a fixed order."""

from typing import Any
from uuid import uuid4

import pytest

from placement_svc.db.claims.refusal import GENERATIONS, INVENTORIES, PROVIDERS, Refusal, raise_reason
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.connections.engine import Database
from placement_svc.domain.allocations import Claim, InventoryUsage
from placement_svc.domain.errors import ConcurrentUpdate, Conflict, Invalid, OverCapacity, PlacementError
from placement_svc.domain.inventory import Inventory

CONSUMER, HOST, OTHER = (str(uuid4()) for _ in range(3))
VCPU = InventoryUsage(Inventory(4, max_unit=3), used=3)
FOUND = {
    GENERATIONS: {CONSUMER: None},
    PROVIDERS: {HOST: 7},
    INVENTORIES: [[7, "VCPU", 4, 0, 1, 3, 1, 1.0, 3, 0]],
}


def claim(allocations: Any, generation: int | None = None) -> Claim:
    return Claim(CONSUMER, "project", "user", None, generation, allocations)


def test_refusal_has_generations_providers_and_usages() -> None:
    assert Refusal.from_json(FOUND) == Refusal({CONSUMER: None}, False, {HOST: 7}, {(HOST, "VCPU"): VCPU})


def test_generation_conflict_has_generations_only() -> None:
    assert Refusal.from_json({GENERATIONS: {CONSUMER: 3}}) == Refusal({CONSUMER: 3}, True, {}, {})


@pytest.mark.parametrize(
    ("document", "claimed", "error", "message"),
    [
        ({GENERATIONS: {CONSUMER: 3}}, claim({OTHER: {"CUSTOM_NONE": 9}}, 2), ConcurrentUpdate, "expected 3"),
        (FOUND, claim({HOST: {"CUSTOM_NONE": 9}, OTHER: {"VCPU": 9}}), Invalid, f"'{OTHER}' that does not"),
        (FOUND, claim({HOST: {"VGPU": 1, "CUSTOM_NONE": 9}}), Invalid, "No class CUSTOM_NONE."),
        (FOUND, claim({HOST: {"VGPU": 9, "VCPU": 9}}), Conflict, "Inventory for 'VGPU'"),
        (FOUND, claim({HOST: {"VCPU": 9}}), Conflict, "violate inventory constraints"),
        (FOUND, claim({HOST: {"VCPU": 2}}), OverCapacity, "exceed the capacity"),
    ],
    ids=["generation", "provider", "resource class", "inventory", "units", "capacity"],
)
def test_first_reason_is_raised(
    database: Database, document: Any, claimed: Claim, error: type[PlacementError], message: str
) -> None:
    with pytest.raises(error, match=message):
        raise_reason(database, [claimed], Refusal.from_json(document), "No class {}.")


@pytest.mark.parametrize("document", [FOUND, {GENERATIONS: {CONSUMER: None}}])
def test_refusals_without_a_reason_are_a_programming_error(
    database: Database, monkeypatch: pytest.MonkeyPatch, document: Any
) -> None:
    refusal = Refusal.from_json(document)
    monkeypatch.setattr(ClaimService, "try_to_replace", lambda *_, **__: refusal)
    with pytest.raises(AssertionError, match="PostgreSQL refuses"):
        ClaimService(database).replace_allocations(
            [claim({HOST: {"VCPU": 1}})], compare_generations=True, unknown_class_message="No class {}."
        )
