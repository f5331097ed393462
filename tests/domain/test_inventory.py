import pytest

from placement_svc.domain.errors import Invalid
from placement_svc.domain.inventory import MAX_CAPACITY, Inventory, check_capacities


@pytest.mark.parametrize(
    ("inventory", "capacity"),
    [
        (Inventory(10), 10),
        (Inventory(10, reserved=10), 0),
        (Inventory(10, reserved=11), -1),
        (Inventory(10, reserved=1, allocation_ratio=1.25), 11),
        (Inventory(100, allocation_ratio=0.29), 28),
        (Inventory(10, reserved=11, allocation_ratio=0.5), 0),
        (Inventory(10, reserved=13, allocation_ratio=0.5), -1),
        (Inventory(10, reserved=20, allocation_ratio=-1.0), 10),
        (Inventory(10, allocation_ratio=0.0), 0),
        (Inventory(2**31 - 1, allocation_ratio=16.0), 34359738352),
        (Inventory(2**31 - 1, allocation_ratio=3.40282e38), MAX_CAPACITY),
        (Inventory(2**31 - 1, allocation_ratio=-1e308), -MAX_CAPACITY),
    ],
)
def test_capacity_is_truncated_toward_zero(inventory, capacity):
    assert inventory.capacity == capacity


@pytest.mark.parametrize(("inventory", "minimum"), [(Inventory(8, 8), 0), (Inventory(8, 7), 1)])
def test_capacity_can_equal_the_minimum(inventory, minimum):
    check_capacities("some-uuid", {"VCPU": inventory}, minimum)


@pytest.mark.parametrize(
    ("inventory", "minimum", "reason"),
    [
        (Inventory(8, 8), 1, "greater than or equal to total."),
        (Inventory(8, allocation_ratio=0.1), 1, "greater than or equal to total."),
        (Inventory(8, 9), 0, "greater than total."),
        (Inventory(8, allocation_ratio=-1.0), 0, "greater than total."),
    ],
)
def test_capacity_below_the_minimum_is_refused(inventory, minimum, reason):
    with pytest.raises(Invalid) as raised:
        check_capacities("some-uuid", {"VCPU": Inventory(1), "VGPU": inventory}, minimum)
    assert str(raised.value) == (
        "Unable to update inventory for resource provider some-uuid: "
        "Invalid inventory for 'VGPU' on resource provider 'some-uuid'. "
        f"The reserved value is {reason}"
    )
