"""The filters of a request for allocation candidates, each with its condition on single providers.

They are what an explanation counts (`docs/spec/extensions.md 3.1`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from placement_svc.domain.groups import SameSubtree
from placement_svc.domain.inventory import ANY_PART


class FilterCode(StrEnum):
    """The kinds of filters, in their order."""

    INVENTORY = "inventory"
    UNIT = "unit"
    CAPACITY = "capacity"
    FREE = "free"
    REQUIRED = "required"
    FORBIDDEN_TRAIT = "forbidden_trait"
    MEMBER_OF = "member_of"
    FORBIDDEN_AGGREGATE = "forbidden_aggregate"
    IN_TREE = "in_tree"
    GROUPS = "groups"
    ROOT_REQUIRED = "root_required"
    ROOT_MEMBER_OF = "root_member_of"
    SAME_SUBTREE = "same_subtree"
    GROUP_POLICY = "group_policy"
    ISOLATE = "isolate"
    SUM = "sum"


AMOUNT_CODES = (FilterCode.INVENTORY, FilterCode.UNIT, FilterCode.CAPACITY, FilterCode.FREE)
"""The filters on the amount of one resource class."""

POSSIBLE_CODES = (FilterCode.INVENTORY, FilterCode.UNIT, FilterCode.CAPACITY)
"""The filters that no release of allocations can satisfy."""


@dataclass(frozen=True)
class AmountCondition:
    """The provider's inventory of a class passes the filter `code` for an amount."""

    code: FilterCode
    class_id: int
    amount: int


@dataclass(frozen=True)
class TraitCondition:
    """The provider has at least one of the traits, or with `forbidden` none of them."""

    ids: frozenset[int]
    forbidden: bool = False


@dataclass(frozen=True)
class AggregateCondition:
    """The provider itself is in at least one of the aggregates, or with `forbidden` in none of them."""

    ids: frozenset[int]
    forbidden: bool = False


@dataclass(frozen=True)
class TreeCondition:
    """The root of the provider is the one with the id `root_id` (None: any), and none of `excluded`."""

    root_id: int | None
    excluded: frozenset[int] = frozenset()


Condition = AmountCondition | TraitCondition | AggregateCondition | TreeCondition


@dataclass(frozen=True, eq=False)
class Filter:
    """A filter of a group; `query` is the part of the request from which it comes.

    The filters on amounts also have their resource class and the requested amount. Filters are equal only if
    they are the same object, so that a set of thousands of them is cheap.
    """

    code: FilterCode
    query: str
    condition: Condition
    resource_class: str | None = None
    wanted: int | None = None

    @property
    def has_gap(self) -> bool:
        """Whether the distance between two amounts shows how far an inventory is from passing the filter."""
        return self.code in (FilterCode.UNIT, FilterCode.CAPACITY, FilterCode.FREE)


@dataclass(frozen=True, eq=False)
class GroupFilters:
    """The filters of a request group, in their order; equal only to itself, as each filter is.

    Several providers of a tree may supply each of the classes `can_split`.
    """

    suffix: str
    filters: tuple[Filter, ...]
    can_split: frozenset[str] = frozenset()

    @cached_property
    def amounts(self) -> tuple[Filter, ...]:
        """The filters `free`: one for each requested amount."""
        return self.having([FilterCode.FREE])

    @cached_property
    def resources(self) -> tuple[tuple[str, int], ...]:
        """The requested amounts by resource class."""
        return tuple(
            (each.resource_class, each.wanted)
            for each in self.amounts
            if each.resource_class is not None and each.wanted is not None
        )

    @cached_property
    def part_conditions(self) -> Mapping[Filter, AmountCondition]:
        """The conditions on an inventory that supplies a part of a class, for the filters on its amount."""
        return {
            each: replace(each.condition, amount=ANY_PART)
            for each in self.having([FilterCode.UNIT, FilterCode.CAPACITY, FilterCode.FREE])
            if each.resource_class in self.can_split and isinstance(each.condition, AmountCondition)
        }

    def having(self, codes: Sequence[FilterCode]) -> tuple[Filter, ...]:
        """Return the filters with one of these codes."""
        return tuple(each for each in self.filters if each.code in codes)

    def without(self, *codes: FilterCode) -> tuple[Filter, ...]:
        """Return the filters with other codes."""
        return tuple(each for each in self.filters if each.code not in codes)


@dataclass(frozen=True)
class RootFilter:
    """A filter on the root itself, which must meet all `conditions`."""

    code: FilterCode
    query: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class CombinationFilter:
    """A filter on the suppliers of several groups; `suffixes` are those of `isolate`."""

    code: FilterCode
    query: str | None
    suffixes: frozenset[str] = frozenset()
    same_subtree: SameSubtree | None = None


TreeFilter = RootFilter | CombinationFilter


@dataclass(frozen=True)
class RequestFilters:
    """The filters of a request: of its groups, of the root, and of combinations."""

    groups: tuple[GroupFilters, ...]
    root_filters: tuple[RootFilter, ...]
    combinations: tuple[CombinationFilter, ...]

    @property
    def conditions(self) -> list[Condition]:
        """The conditions of all filters on single providers, and those on parts of a class."""
        of_groups = [each.condition for group in self.groups for each in group.filters]
        of_parts = [each for group in self.groups for each in group.part_conditions.values()]
        of_root = [each for root_filter in self.root_filters for each in root_filter.conditions]
        return [*of_groups, *of_parts, *of_root]

    @property
    def split_amounts(self) -> Mapping[int, int]:
        """The amounts of the classes that several providers of a tree may supply, by class id."""
        return {
            each.condition.class_id: each.condition.amount
            for group in self.groups
            for each in group.amounts
            if each.resource_class in group.can_split and isinstance(each.condition, AmountCondition)
        }

    @property
    def amounts(self) -> list[Filter]:
        """The filters `free` of all groups: one for each requested amount."""
        return [each for group in self.groups for each in group.amounts]


@dataclass(frozen=True, kw_only=True)
class GroupTexts:
    """The parts of the query that are the filters of one group, apart from its amounts.

    The clauses are in the order of the request, without repetitions.
    """

    required: Mapping[frozenset[str], str] = field(default_factory=dict)
    forbidden_trait: str = ""
    member_of: Mapping[frozenset[str], str] = field(default_factory=dict)
    forbidden_aggregate: str = ""
    in_tree: str = ""


@dataclass(frozen=True, kw_only=True)
class QueryTexts:
    """The parts of the query that are the filters of a request; `groups` are by suffix."""

    groups: Mapping[str, GroupTexts]
    root_required: str = ""
    root_member_of: str = ""
    same_subtree: tuple[str, ...] = ()
    isolate: str = ""
