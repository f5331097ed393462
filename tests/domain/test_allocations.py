import pytest

from placement_svc.domain.allocations import Claim, InventoryUsage, check_inventories
from placement_svc.domain.errors import Conflict
from placement_svc.domain.inventory import Inventory

ONE, OTHER = "provider-one", "provider-other"
NO_INVENTORY = "Inventory for '{}' on resource provider '{}' invalid."
CONSTRAINTS = "would violate inventory constraints."
CAPACITY = "would exceed the capacity."


def claims(*allocations):
    return [
        Claim(f"consumer-{number}", "project", "user", None, None, allocation)
        for number, allocation in enumerate(allocations)
    ]


def vcpu(amount, provider=ONE):
    return {provider: {"VCPU": amount}}


@pytest.mark.parametrize(
    ("usage", "amounts"),
    [
        (InventoryUsage(Inventory(4)), [4]),
        (InventoryUsage(Inventory(4)), [1, 3]),
        (InventoryUsage(Inventory(4), used=3), [1]),
        (InventoryUsage(Inventory(4, reserved=1)), [3]),
        (InventoryUsage(Inventory(7, allocation_ratio=0.5)), [3]),
        (InventoryUsage(Inventory(1, allocation_ratio=16.0)), [16]),
        (InventoryUsage(Inventory(10, min_unit=3, step_size=2)), [4]),
        (InventoryUsage(Inventory(10, min_unit=2, max_unit=2)), [2]),
        # Replaced amounts do not count twice.
        (InventoryUsage(Inventory(4), used=4, replaced=4), [4]),
        (InventoryUsage(Inventory(4), used=4, replaced=3), [1, 2]),
        # An overcommitted inventory grants the replaced amount again, or less.
        (InventoryUsage(Inventory(3), used=12, replaced=8), [8]),
        (InventoryUsage(Inventory(3), used=12, replaced=8), [7]),
        (InventoryUsage(Inventory(3), used=12, replaced=8), [1, 7]),
    ],
)
def test_granted(usage, amounts):
    check_inventories(claims(*map(vcpu, amounts)), {(ONE, "VCPU"): usage})


@pytest.mark.parametrize(
    ("usage", "amounts", "reason"),
    [
        (InventoryUsage(Inventory(4)), [5], CAPACITY),
        (InventoryUsage(Inventory(4)), [2, 3], CAPACITY),
        (InventoryUsage(Inventory(4), used=4), [1], CAPACITY),
        (InventoryUsage(Inventory(4, reserved=1)), [4], CAPACITY),
        (InventoryUsage(Inventory(4, reserved=5)), [1], CAPACITY),
        (InventoryUsage(Inventory(7, allocation_ratio=0.5)), [4], CAPACITY),
        (InventoryUsage(Inventory(4), used=4, replaced=3), [4], CAPACITY),
        (InventoryUsage(Inventory(3), used=12, replaced=8), [9], CAPACITY),
        (InventoryUsage(Inventory(3), used=12, replaced=8), [8, 1], CAPACITY),
        (InventoryUsage(Inventory(3), used=12), [1], CAPACITY),
        (InventoryUsage(Inventory(10, min_unit=2)), [1], CONSTRAINTS),
        (InventoryUsage(Inventory(10, max_unit=2)), [3], CONSTRAINTS),
        (InventoryUsage(Inventory(10, min_unit=3, step_size=2)), [5], CONSTRAINTS),
        (InventoryUsage(Inventory(4)), [10**30], CONSTRAINTS),
        # The rule for units has no tolerance.
        (InventoryUsage(Inventory(10, max_unit=2), used=3, replaced=3), [3], CONSTRAINTS),
        # The first amount that fails determines the reason.
        (InventoryUsage(Inventory(10, max_unit=5), used=8), [3, 6], CAPACITY),
        (InventoryUsage(Inventory(10, max_unit=5), used=8), [6, 3], CONSTRAINTS),
    ],
)
def test_refused(usage, amounts, reason):
    with pytest.raises(Conflict) as refused:
        check_inventories(claims(*map(vcpu, amounts)), {(ONE, "VCPU"): usage})
    assert str(refused.value) == (
        "Unable to allocate inventory: Unable to create allocation for 'VCPU' on resource provider "
        f"'{ONE}'. The requested amount {reason}"
    )
    assert refused.value.code == "placement.undefined_code"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (claims({ONE: {"VGPU": 1}}), NO_INVENTORY.format("VGPU", ONE)),
        (claims({ONE: {"VCPU": 1, "VGPU": 1}}), NO_INVENTORY.format("VGPU", ONE)),
        (claims(vcpu(1), vcpu(1, OTHER)), NO_INVENTORY.format("VCPU", OTHER)),
        # A provider without any requested class is reported before any amount is checked.
        (claims(vcpu(99), {OTHER: {"VGPU": 1}}), NO_INVENTORY.format("VCPU, VGPU", OTHER)),
    ],
)
def test_refused_without_inventory(wanted, message):
    with pytest.raises(Conflict) as refused:
        check_inventories(wanted, {(ONE, "VCPU"): InventoryUsage(Inventory(4))})
    assert str(refused.value) == f"Unable to allocate inventory: {message}"


def test_claims_without_allocations_are_granted():
    check_inventories(claims({}, {}), {(ONE, "VCPU"): InventoryUsage(Inventory(4), used=9, replaced=9)})


def test_each_inventory_is_checked_separately():
    usages = {
        (ONE, "VCPU"): InventoryUsage(Inventory(2)),
        (ONE, "VGPU"): InventoryUsage(Inventory(2)),
        (OTHER, "VCPU"): InventoryUsage(Inventory(2)),
    }
    check_inventories(claims({ONE: {"VCPU": 2, "VGPU": 2}}, vcpu(2, OTHER)), usages)
