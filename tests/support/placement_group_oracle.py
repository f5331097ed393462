"""Placement groups by brute force, from the text of `docs/spec/extensions.md 5.2` alone.

A provider is a dictionary with `root`, `traits` and `aggregates`; allocations are by consumer and provider.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

SHARING = "MISC_SHARES_VIA_AGGREGATE"

Group = Mapping[str, Any]
Providers = Mapping[str, Mapping[str, Any]]


def roots(suppliers: Collection[str], providers: Providers) -> set[str]:
    """Return the roots of a consumer that has allocations from these providers."""
    hosts = [uuid for uuid in suppliers if SHARING not in providers[uuid]["traits"]]
    return {providers[uuid]["root"] for uuid in hosts or suppliers}


def domain(group: Group, root: str, providers: Providers) -> str | None:
    """Return the domain of a root."""
    if group["across"] == "root":
        return root
    own = [uuid for uuid in group["across"] if uuid in providers[root]["aggregates"]]
    return own[0] if own else None


def keeps(group: Group, others: Sequence[Collection[str | None]], mine: Collection[str | None]) -> bool:
    """Return whether a member in the domains `mine` keeps the policy, with the others where they are."""
    if None in mine:
        return False

    def count(name: str | None) -> int:
        return sum(name in domains for domains in others)

    if group["policy"].endswith("anti-affinity"):
        return all(count(name) + 1 <= group["max_per_domain"] for name in mine)
    occupied = {name for domains in others for name in domains if name is not None}
    return len(mine) == 1 and all(count(name) >= count(other) for name in mine for other in occupied)


def rank(
    group: Group, others: Sequence[Collection[str | None]], mine: Collection[str | None]
) -> tuple[bool, bool, int]:
    """Return the rank of these domains under a soft policy; smaller is better."""
    counts = [sum(name in each for each in others) if name else 0 for name in mine]
    number = max(counts) if group["policy"].endswith("anti-affinity") else -min(counts)
    return not keeps(group, others, mine), None in mine, number


def violations(group: Group, members: Mapping[str, Collection[str | None]]) -> list[str]:
    """Return the members that do not keep the policy, with all others where they are."""
    return sorted(
        uuid
        for uuid, mine in members.items()
        if not keeps(group, [other for key, other in members.items() if key != uuid], mine)
    )
