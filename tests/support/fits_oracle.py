"""An oracle for GET /allocation_candidates/capacity: plain loops over a cloud in memory.

It implements `docs/spec/extensions.md 4` with the rules of `tests/support/oracle.py`, and tries every order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.cloud import Cloud, Provider
from tests.support.explanation_oracle import Explainer
from tests.support.oracle import Candidate, Request, allowed_anchors, candidates_at

Amounts = frozenset[tuple[str, str, int]]


class TooManyStates(Exception):
    """There are more states than the oracle may try."""


def without_trees(cloud: Cloud, names: Collection[str]) -> Cloud:
    """Return the cloud without the trees of these providers."""
    roots = {cloud.root(cloud.provider(name)).name for name in names}
    return Cloud(tuple(each for each in cloud.providers if cloud.root(each).name not in roots))


def claimed(cloud: Cloud, amounts: Amounts, times: int = 1) -> Cloud:
    """Return the cloud after claims of these amounts."""
    providers = {provider.name: provider for provider in cloud.providers}
    for name, resource_class, amount in amounts:
        inventories = dict(providers[name].inventories)
        before = inventories[resource_class]
        inventories[resource_class] = replace(before, used=before.used + amount * times)
        providers[name] = replace(providers[name], inventories=inventories)
    return Cloud(tuple(providers.values()))


def used_amounts(cloud: Cloud) -> tuple[int, ...]:
    return tuple(
        inventory.used for provider in cloud.providers for inventory in provider.inventories.values()
    )


@dataclass
class Claimer:
    """All runs of claims of a request, each until it has no candidate at one of `anchors`."""

    request: Request
    anchors: Sequence[str]
    max_states: int

    def __post_init__(self) -> None:
        self.lengths: dict[tuple[int, ...], frozenset[int]] = {}

    def candidates(self, cloud: Cloud) -> set[Candidate]:
        return {
            candidate
            for anchor in allowed_anchors(cloud, self.request)
            if anchor.name in self.anchors
            for candidate in candidates_at(cloud, self.request, anchor)
        }

    def run_lengths(self, cloud: Cloud) -> frozenset[int]:
        """Return the length of every run that starts with this cloud."""
        state = used_amounts(cloud)
        if state not in self.lengths:
            if len(self.lengths) >= self.max_states:
                raise TooManyStates
            choices = {candidate.amounts for candidate in self.candidates(cloud)}
            self.lengths[state] = frozenset(
                1 + length for amounts in choices for length in self.run_lengths(claimed(cloud, amounts))
            ) or frozenset([0])
        return self.lengths[state]


class FitsOracle:
    """The capacity of a cloud for a request."""

    def __init__(self, cloud: Cloud, request: Request, max_states: int) -> None:
        self.cloud = cloud
        self.request = request
        self.max_states = max_states
        self.roots = sorted(allowed_anchors(cloud, request), key=lambda root: root.uuid)
        self.by_root = {root.name: candidates_at(cloud, request, root) for root in self.roots}
        self.classes = list(dict.fromkeys(name for group in request.groups for name in group.resources))

    def run_lengths(self, roots: Iterable[Provider] | None = None) -> frozenset[int]:
        """Return the length of every run, at some roots or at all; raises `TooManyStates`."""
        anchors = [root.name for root in (self.roots if roots is None else roots)]
        return Claimer(self.request, anchors, self.max_states).run_lengths(self.cloud)

    def shares_suppliers(self) -> bool:
        """Return whether a supplier serves two roots."""
        suppliers = [
            {name for candidate in found for _, names in candidate.mappings or () for name in names}
            for found in self.by_root.values()
        ]
        return sum(map(len, suppliers)) > len(set().union(*suppliers))

    def promises_exact(self) -> bool:
        """Return whether the specification promises an exact result."""
        groups = self.request.groups
        return not self.shares_suppliers() and (
            all(len(found) <= 1 for found in self.by_root.values())
            or (len(groups) == 1 and groups[0].suffix != "")
            or len(self.classes) == 1
        )

    def binding(self, root: Provider, times: int) -> str | None:
        """Return the binding of a root after so many claims, None if it has several candidates."""
        amounts = {candidate.amounts for candidate in self.by_root[root.name]}
        if len(amounts) != 1:
            return None
        [of_claim] = amounts
        after = claimed(self.cloud, of_claim, times)
        return next(
            name
            for name in self.classes
            for provider, resource_class, amount in of_claim
            if resource_class == name and free(after, provider, name) < amount
        )

    def stranded(self, fits: int) -> Mapping[str, int]:
        """Return what is stranded after so many claims.

        Suppliers are among the providers whose free amounts count, so each claim takes its amounts of them.
        """
        explainer = Explainer(self.cloud, self.request)
        amounts = {
            name: explainer.free_of(name)
            - fits * sum(group.resources.get(name, 0) for group in self.request.groups)
            for name in self.classes
        }
        return {name: amount for name, amount in amounts.items() if amount}


def free(cloud: Cloud, provider: str, name: str) -> Any:
    inventory = cloud.provider(provider).inventories[name]
    return (inventory.total - inventory.reserved) * inventory.allocation_ratio - inventory.used
