"""The order of the suppliers of simulated claims, of lists that roots share and of others."""

import random

import pytest

from placement_svc.domain.demands import Demand
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.simulated_claims.amounts import RootSuppliers, SimulatedInventories
from placement_svc.domain.simulated_claims.supplier_orders import SupplierOrders

HOSTS = range(100, 140)
POOLS = list(range(40))
DISK = Demand("", (("DISK_GB", 3),))
DISK_AND_CPU = Demand("_1", (("DISK_GB", 2), ("VCPU", 1)))


def inventories(seed: int) -> SimulatedInventories:
    """Return pools, some of which are in the trees of hosts."""
    draw = random.Random(seed)
    free = {(id_, name): draw.randrange(40) for id_ in POOLS for name in ("DISK_GB", "VCPU")}
    paths = {id_: draw.choice([(id_,), (draw.choice(HOSTS), id_)]) for id_ in POOLS}
    return SimulatedInventories(free=free, paths=paths)


def expected(
    held: SimulatedInventories, root_id: int, demand: Demand, ids: list[int]
) -> list[tuple[int, int]]:
    times = [(id_, held.times_of(demand, id_)) for id_ in ids]
    able = [each for each in times if each[1]]
    return sorted(able, key=lambda each: (held.path(each[0])[0] != root_id, -each[1]))


@pytest.mark.parametrize("seed", range(20))
def test_order_follows_the_claims(seed: int) -> None:
    held = inventories(seed)
    draw = random.Random(seed)
    shared, other = draw.sample(POOLS, 30), draw.sample(POOLS, 30)
    roots = [RootSuppliers(root_id, [shared, shared]) for root_id in HOSTS]
    orders = SupplierOrders(held, [*roots, RootSuppliers(1, [other, shared])], Deadline.of(60))
    for root_id in HOSTS:
        for demand in (DISK, DISK_AND_CPU):
            for ids in (shared, other):
                able = orders.able(root_id, demand, ids)
                assert list(able.items()) == expected(held, root_id, demand, ids)
            for id_, times in list(able.items())[:3]:
                amounts = {(id_, name): amount for name, amount in demand.resources}
                orders.claim(amounts, draw.randint(1, times))


def test_claims_of_many_roots_sort_a_shared_list_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = SimulatedInventories(
        free={(id_, "DISK_GB"): 1000 for id_ in POOLS}, paths={id_: (id_,) for id_ in POOLS}
    )
    counted = 0
    times_of = SimulatedInventories.times_of

    def counting(self: SimulatedInventories, demand: Demand, provider_id: int) -> int:
        nonlocal counted
        counted += 1
        return times_of(self, demand, provider_id)

    monkeypatch.setattr(SimulatedInventories, "times_of", counting)
    orders = SupplierOrders(held, [RootSuppliers(root_id, [POOLS]) for root_id in HOSTS], Deadline.of(60))
    for root_id in HOSTS:
        id_ = next(iter(orders.able(root_id, DISK, POOLS)))
        orders.claim({(id_, "DISK_GB"): 3}, 1)

    assert counted <= len(POOLS) + len(HOSTS)
