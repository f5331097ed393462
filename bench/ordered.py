"""Hosts of which a part is used, and one request in each order of `order_by`.

The hosts are those of the scenarios `filters` and `filters-nested`, so that the request has one candidate in
each host.
"""

from collections.abc import Iterator
from random import Random

from bench import filters
from bench.clouds import Cloud, Consumer, Provider

UNORDERED = "no order"

ORDERS = {
    UNORDERED: "",
    "spread": "&order_by=spread:VCPU",
    "pack": "&order_by=pack:VCPU",
    "random": "&order_by=random",
}
"""The part of the query of each order."""


def flat(hosts: int) -> Cloud:
    """Return hosts of one provider each, partly used."""
    return _partly_used(filters.flat(hosts).providers)


def nested(hosts: int) -> Cloud:
    """Return hosts of four providers, of which each is partly used."""
    return _partly_used(filters.nested(hosts).providers)


def _partly_used(providers: tuple[Provider, ...]) -> Cloud:
    return Cloud(providers, tuple(_consumers(providers)))


def _consumers(providers: tuple[Provider, ...]) -> Iterator[Consumer]:
    """Yield a consumer of each provider, which uses a random part of each inventory, up to three quarters."""
    random = Random(0)
    for provider in providers:
        used = {name: random.randint(1, total * 3 // 4) for name, total in provider.inventories.items()}
        yield Consumer(f"{provider.name}-instance", provider.name, used)
