"""The request for allocation candidates, parsed (`docs/spec/candidates.md 2 and 3`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property


@dataclass(frozen=True)
class Membership:
    """A condition on the traits or the aggregates of a provider, by name.

    The provider has at least one member of each set in `any_of`, and no member of `forbidden`.
    """

    any_of: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Return whether there is any condition."""
        return bool(self.any_of or self.forbidden)

    @property
    def names(self) -> list[str]:
        """All names without duplicates: those of `any_of` first, each set in alphabetical order."""
        sets = [sorted(names) for names in (*self.any_of, self.forbidden)]
        return list(dict.fromkeys(name for names in sets for name in names))

    @property
    def contradictions(self) -> list[frozenset[str]]:
        """The sets of `any_of` that no provider can satisfy because every member is forbidden."""
        return [names for names in self.any_of if names <= self.forbidden]


NO_CONDITION = Membership()
"""The condition that every provider meets."""


@dataclass(frozen=True)
class RequestGroup:
    """A request group: amounts by resource class, and the conditions on the providers that supply them.

    `in_tree` is the uuid of any provider of the required tree (None: any tree), and `not_in_tree` those of
    providers whose trees are excluded. The unsuffixed group has the suffix ``""``.
    """

    suffix: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    required: Membership = NO_CONDITION
    member_of: Membership = NO_CONDITION
    in_tree: str | None = None
    not_in_tree: frozenset[str] = frozenset()

    @property
    def has_filters(self) -> bool:
        """Whether anything but amounts is required of the providers."""
        return bool(self.required or self.member_of or self.in_tree or self.not_in_tree)


NO_REQUIREMENTS = RequestGroup()
"""The group that every provider satisfies."""


class GroupPolicy(StrEnum):
    """The values of `group_policy`: whether suffixed groups may share a provider."""

    NONE = "none"
    ISOLATE = "isolate"


class OrderMethod(StrEnum):
    """The values of `order_by`, without the resource class."""

    SPREAD = "spread"
    PACK = "pack"
    RANDOM = "random"


@dataclass(frozen=True)
class OrderBy:
    """The order of the trees: by what is free of a resource class, or random (without a class)."""

    method: OrderMethod
    resource_class: str | None = None


@dataclass(frozen=True)
class SameSubtree:
    """One `same_subtree`: the suffixes of the groups whose suppliers are in one subtree.

    No provider of that subtree supplies the groups with the suffixes `excluded`
    (`docs/spec/extensions.md 2.3`).
    """

    suffixes: frozenset[str]
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CandidatesRequest:
    """A request for allocation candidates (`docs/spec/candidates.md 2`).

    The suffixes of `groups` are distinct. `root_required` is a condition on the traits of the anchor,
    `root_member_of` is one on its own aggregates, and `limit` is the largest number of candidates to return
    (None: all). A provider that supplies a group with a suffix in `isolate` supplies no other group with a
    suffix (`docs/spec/extensions.md 2.2`). The allocations of the consumers with the uuids `ignore_consumer`
    count as free. Candidates with more of the `preferred` traits come first. Several providers of one tree
    may supply parts of the classes `can_split` of the unsuffixed group (`docs/spec/extensions.md 2.8`).
    """

    groups: tuple[RequestGroup, ...]
    root_required: Membership = NO_CONDITION
    root_member_of: Membership = NO_CONDITION
    same_subtree: tuple[SameSubtree, ...] = ()
    group_policy: GroupPolicy = GroupPolicy.NONE
    isolate: frozenset[str] = frozenset()
    limit: int | None = None
    ignore_consumer: frozenset[str] = frozenset()
    preferred: frozenset[str] = frozenset()
    order_by: OrderBy | None = None
    can_split: frozenset[str] = frozenset()

    @cached_property
    def without_order(self) -> "CandidatesRequest":
        """The same request without `order_by`."""
        return replace(self, order_by=None)

    @cached_property
    def in_random_order(self) -> "CandidatesRequest":
        """The same request with trees in random order; with `preferred`, those with the same score."""
        return replace(self, order_by=OrderBy(OrderMethod.RANDOM))

    def least_amounts(self, group: RequestGroup) -> Mapping[str, int]:
        """Return the least amount of each class that a supplier must have: 1 for a class in `can_split`."""
        if group.suffix or not self.can_split:
            return group.resources
        return {name: 1 if name in self.can_split else amount for name, amount in group.resources.items()}
