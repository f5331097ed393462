"""Clients that place consumers with POST /claims, and record what the service acknowledged.

`Pool` counts the places that are taken, so a client knows whether a call must succeed.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from uuid import uuid4

from tests.support.claims_oracle import consumer
from tests.support.service import Answer, Client
from tests.support.stored_allocations import Allocations

HOSTS = 8
RACKS = 4
VCPUS = 3
"""VCPU of each host, which consumers without a group use up."""

DEVICES = 40
"""PCI devices below each host: more than the members of all groups can use there."""

FUNCTIONS = 4
"""Network functions of each host: as many members as a group with affinity can have."""

ORDERS = ("", "&order_by=spread:{}", "&order_by=pack:{}", "&order_by=random")


@dataclass(frozen=True)
class Cloud:
    """The hosts, the device providers below them, and the racks; all by uuid."""

    hosts: Sequence[str]
    devices: Sequence[str]
    racks: Sequence[str]


def create_cloud(client: Client) -> Cloud:
    """Create hosts in racks, each with a child that has the devices."""
    racks = [str(uuid4()) for _ in range(RACKS)]
    hosts = [create_provider(client, {"VCPU": VCPUS, "SRIOV_NET_VF": FUNCTIONS}) for _ in range(HOSTS)]
    for number, host in enumerate(hosts):
        body = {"aggregates": [racks[number % RACKS]], "resource_provider_generation": 1}
        client.result("PUT", f"/resource_providers/{host}/aggregates", body)
    devices = [create_provider(client, {"PCI_DEVICE": DEVICES}, host) for host in hosts]
    return Cloud(hosts, devices, racks)


def create_provider(client: Client, totals: dict[str, int], parent: str | None = None) -> str:
    """Create a provider with inventories, by their totals, and return its uuid."""
    uuid = str(uuid4())
    body = {"name": uuid, "uuid": uuid, "parent_provider_uuid": parent}
    client.result("POST", "/resource_providers", body)
    client.result("PUT", f"/resource_providers/{uuid}/inventories", inventories(0, totals))
    return uuid


def inventories(generation: int, totals: dict[str, int]) -> dict[str, Any]:
    """Return the request body of inventories with these totals."""
    return {
        "resource_provider_generation": generation,
        "inventories": {name: {"total": total} for name, total in totals.items()},
    }


@dataclass(eq=False)
class Pool:
    """The consumers of one placement group, or those without a group: at most `places` fit.

    `free` is what placed consumers and running calls leave. It is negative while running calls ask for more
    than there is.
    """

    resource_class: str
    places: int
    group: str | None = None
    policy: str | None = None
    free: int = field(init=False)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.free = self.places

    def take(self, number: int) -> None:
        """Take places for a call."""
        with self._lock:
            self.free -= number

    def take_if_free(self, number: int) -> bool:
        """Take places for a call if there are enough; return whether."""
        with self._lock:
            enough = self.free >= number
            self.free -= number if enough else 0
            return enough

    def give_back(self, number: int) -> bool:
        """Give places back; return whether all calls fit before.

        A call that is refused takes nothing. If all calls fit until it was refused, there was room for it.
        """
        with self._lock:
            all_fit = self.free >= 0
            self.free += number
            return all_fit


def create_pools(client: Client, racks: Sequence[str]) -> list[Pool]:
    """Create placement groups; return their pools, and that of the consumers without a group.

    Each pool has exactly as many places as the policy and the inventories allow, or as can be used at most
    by soft policies without making another pool smaller.
    """
    policies: list[tuple[dict[str, Any], str, int]] = [
        ({"policy": "anti-affinity"}, "PCI_DEVICE", HOSTS),
        ({"policy": "anti-affinity"}, "PCI_DEVICE", HOSTS),
        ({"policy": "anti-affinity", "max_per_domain": 2}, "PCI_DEVICE", 2 * HOSTS),
        ({"policy": "anti-affinity", "max_per_domain": 3, "across": list(racks)}, "PCI_DEVICE", 3 * RACKS),
        ({"policy": "affinity"}, "SRIOV_NET_VF", FUNCTIONS),
        ({"policy": "soft-anti-affinity"}, "PCI_DEVICE", HOSTS),
        ({"policy": "soft-affinity"}, "PCI_DEVICE", HOSTS),
    ]
    pools = [Pool("VCPU", HOSTS * VCPUS)]
    for body, resource_class, places in policies:
        uuid = str(uuid4())
        client.result("PUT", f"/placement_groups/{uuid}", body)
        pools.append(Pool(resource_class, places, uuid, body["policy"]))
    return pools


@dataclass(frozen=True)
class Placed:
    """The responses of the service about a consumer."""

    generation: int
    allocations: Allocations
    pool: Pool


class Placer:
    """A client with consumers of its own."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.placed: dict[str, Placed] = {}
        self.placements = 0
        self.attempts = 0
        self.undue_refusals: list[Answer] = []

    def place(self, pool: Pool, uuids: Sequence[str], *, all_or_none: bool = True) -> Answer:
        """Send POST /claims for new or own consumers in a pool, and record the response.

        The caller has taken a place for each consumer that is not in the pool yet.
        """
        order = random.choice(ORDERS).format(pool.resource_class)
        consumers = [consumer(uuid, self._generation(uuid)) for uuid in uuids]
        body = {"request": f"resources={pool.resource_class}:1{order}", "consumers": consumers}
        body |= {"min_count": len(uuids) if all_or_none else 1}
        if pool.group is not None:
            body["placement_group"] = pool.group
        response = self.client("POST", "/claims", body)
        former = {uuid: self.placed[uuid].pool for uuid in uuids if uuid in self.placed}
        claims = response.body["claims"] if response.status == 200 else []
        for claim in claims:
            allocations = {provider: each["resources"] for provider, each in claim["allocations"].items()}
            self._record(claim["consumer_uuid"], claim["consumer_generation"], allocations, pool)
        granted = {claim["consumer_uuid"] for claim in claims}
        self.placements += len(granted)
        self.attempts += response.body["attempts"] if granted else 0
        for uuid in uuids:
            if uuid in granted and uuid in former and former[uuid] is not pool:
                former[uuid].give_back(1)
        missing = sum(uuid not in granted and former.get(uuid) is not pool for uuid in uuids)
        if len(granted) < len(uuids) and pool.give_back(missing):
            self.undue_refusals.append(response)
        return response

    def put(self, pool: Pool, uuid: str, provider: str) -> Answer:
        """Send PUT /allocations for a new consumer on one provider, and record the response."""
        amounts = {pool.resource_class: 1}
        body = consumer(uuid)
        del body["uuid"]
        body["allocations"] = {provider: {"resources": amounts}}
        response = self.client("PUT", f"/allocations/{uuid}", body)
        if response.status == 204:
            self._record(uuid, 1, {provider: amounts}, pool)
        else:
            pool.give_back(1)
        return response

    def delete(self, uuid: str) -> None:
        """Delete an own consumer."""
        response = self.client("DELETE", f"/allocations/{uuid}")
        assert response.status == 204, response
        self.placed.pop(uuid).pool.give_back(1)

    def in_pool(self, pool: Pool) -> list[str]:
        """Return the own consumers in a pool."""
        return [uuid for uuid, placed in self.placed.items() if placed.pool is pool]

    def _generation(self, uuid: str) -> int | None:
        return self.placed[uuid].generation if uuid in self.placed else None

    def _record(self, uuid: str, generation: int, allocations: Allocations, pool: Pool) -> None:
        assert generation == (self._generation(uuid) or 0) + 1
        assert {name: sum(each.values()) for each in allocations.values() for name in each} == {
            pool.resource_class: 1
        }
        self.placed[uuid] = Placed(generation, allocations, pool)


def new_uuids(number: int) -> list[str]:
    """Return uuids of new consumers."""
    return [str(uuid4()) for _ in range(number)]
