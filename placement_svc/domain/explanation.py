"""The filters of a request for allocation candidates, each with its condition on single providers.

They are what an explanation counts (`docs/spec/extensions.md 3.1`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


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
    SAME_SUBTREE = "same_subtree"
    GROUP_POLICY = "group_policy"
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
    """The root of the provider is the one with this id."""

    root_id: int


Condition = AmountCondition | TraitCondition | AggregateCondition | TreeCondition


@dataclass(frozen=True)
class Filter:
    """A filter of a group; `query` is the part of the request from which it comes.

    The filters on amounts also have their resource class and the requested amount.
    """

    code: FilterCode
    query: str
    condition: Condition
    resource_class: str | None = None
    wanted: int | None = None


@dataclass(frozen=True)
class GroupFilters:
    """The filters of a request group, in their order."""

    suffix: str
    filters: tuple[Filter, ...]

    def having(self, codes: Sequence[FilterCode]) -> tuple[Filter, ...]:
        """Return the filters with one of these codes."""
        return tuple(each for each in self.filters if each.code in codes)

    def without(self, *codes: FilterCode) -> tuple[Filter, ...]:
        """Return the filters with other codes."""
        return tuple(each for each in self.filters if each.code not in codes)


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
    same_subtree: tuple[str, ...] = ()
