"""Hosts of which a part is used, and one request in each order of `order_by`.

The hosts are those of the scenarios `filters`, `filters-nested` and `shared`, so that the request has one
candidate in each host.
"""

from collections.abc import Iterator, Mapping
from random import Random

from bench import clouds, filters
from bench.clouds import Cloud, Consumer, Provider

UNORDERED = "no order"


def orders(resource_class: str) -> Mapping[str, str]:
    """Return the part of the query of each order, those by what is free by that of this class."""
    return {
        UNORDERED: "",
        "spread": f"&order_by=spread:{resource_class}",
        "pack": f"&order_by=pack:{resource_class}",
        "random": "&order_by=random",
    }


def flat(hosts: int) -> Cloud:
    """Return hosts of one provider each, partly used."""
    return _partly_used(filters.flat(hosts).providers)


def nested(hosts: int) -> Cloud:
    """Return hosts of four providers, of which each is partly used."""
    return _partly_used(filters.nested(hosts).providers)


def shared(hosts: int) -> Cloud:
    """Return hosts without disks and storage pools, of which each is partly used."""
    return _partly_used(clouds.shared(hosts).providers)


def _partly_used(providers: tuple[Provider, ...]) -> Cloud:
    return Cloud(providers, tuple(_consumers(providers)))


def _consumers(providers: tuple[Provider, ...]) -> Iterator[Consumer]:
    """Yield a consumer of each provider, which uses a random part of each inventory, up to three quarters."""
    random = Random(0)
    for provider in providers:
        used = {name: random.randint(1, total * 3 // 4) for name, total in provider.inventories.items()}
        yield Consumer(f"{provider.name}-instance", provider.name, used)
