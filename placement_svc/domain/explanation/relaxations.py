"""The changes of a request that could give it more candidates (`docs/spec/extensions.md 3.5`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from placement_svc.domain.explanation.filters import (
    AmountCondition,
    Filter,
    FilterCode,
    GroupFilters,
    QueryTexts,
    RequestFilters,
    RootFilter,
    TreeFilter,
)
from placement_svc.domain.groups import NO_CONDITION, CandidatesRequest, GroupPolicy, RequestGroup

MAX_CHANGES = 2
"""The number of changes that are tried together."""

MAX_PAIRS = 50
"""The number of pairs of changes that are tried."""

REMOVABLE = frozenset(
    [
        FilterCode.REQUIRED,
        FilterCode.FORBIDDEN_TRAIT,
        FilterCode.MEMBER_OF,
        FilterCode.FORBIDDEN_AGGREGATE,
        FilterCode.IN_TREE,
    ]
)
"""The filters of a group without which it remains a group."""


@dataclass(frozen=True)
class GroupRemoval:
    """The removal of a filter of a group."""

    suffix: str
    filter: Filter

    @property
    def query(self) -> str:
        """The part of the query that is removed."""
        return self.filter.query

    def untested(self, filters: RequestFilters) -> frozenset[Filter | RootFilter]:
        """Return the filters on single providers that the changed request does not have."""
        return frozenset([self.filter])

    def apply(self, filters: RequestFilters) -> RequestFilters:
        """Return the filters without this one."""
        groups = (
            replace(each, filters=tuple(one for one in each.filters if one != self.filter))
            if each.suffix == self.suffix
            else each
            for each in filters.groups
        )
        return replace(filters, groups=tuple(each for each in groups if each.filters))

    def change(self, request: CandidatesRequest, texts: QueryTexts) -> CandidatesRequest:
        """Return the request without the filter, and without its group if that has no other key."""
        groups = (
            self._change_group(each, texts) if each.suffix == self.suffix else each for each in request.groups
        )
        return replace(request, groups=tuple(each for each in groups if each.resources or each.has_filters))

    def _change_group(self, group: RequestGroup, texts: QueryTexts) -> RequestGroup:
        of_group = texts.groups[self.suffix]
        required, member_of = group.required, group.member_of
        match self.filter.code:
            case FilterCode.REQUIRED:
                kept = (names for names in required.any_of if of_group.required[names] != self.query)
                return replace(group, required=replace(required, any_of=tuple(kept)))
            case FilterCode.FORBIDDEN_TRAIT:
                return replace(group, required=replace(required, forbidden=frozenset()))
            case FilterCode.MEMBER_OF:
                kept = (names for names in member_of.any_of if of_group.member_of[names] != self.query)
                return replace(group, member_of=replace(member_of, any_of=tuple(kept)))
            case FilterCode.FORBIDDEN_AGGREGATE:
                return replace(group, member_of=replace(member_of, forbidden=frozenset()))
        return replace(group, in_tree=None, not_in_tree=frozenset())


@dataclass(frozen=True)
class TreeRemoval:
    """The removal of a filter on the root, of a `same_subtree`, of `group_policy=isolate`, or of `isolate`.

    `number` is the position among the filters on combinations.
    """

    filter: TreeFilter
    number: int | None = None

    @property
    def query(self) -> str:
        """The part of the query that is removed."""
        return self.filter.query or ""

    def untested(self, filters: RequestFilters) -> frozenset[Filter | RootFilter]:
        """Return the filters on single providers that the changed request does not have."""
        return frozenset([self.filter] if isinstance(self.filter, RootFilter) else [])

    def apply(self, filters: RequestFilters) -> RequestFilters:
        """Return the filters without this one."""
        if isinstance(self.filter, RootFilter):
            of_root = tuple(each for each in filters.root_filters if each != self.filter)
            return replace(filters, root_filters=of_root)
        kept = [each for number, each in enumerate(filters.combinations) if number != self.number]
        return replace(filters, combinations=tuple(kept))

    def change(self, request: CandidatesRequest, texts: QueryTexts) -> CandidatesRequest:
        """Return the request without the filter."""
        if self.filter.code is FilterCode.ROOT_REQUIRED:
            return replace(request, root_required=NO_CONDITION)
        if self.filter.code is FilterCode.ROOT_MEMBER_OF:
            return replace(request, root_member_of=NO_CONDITION)
        if self.filter.code is FilterCode.GROUP_POLICY:
            return replace(request, group_policy=GroupPolicy.NONE)
        if self.filter.code is FilterCode.ISOLATE:
            return replace(request, isolate=frozenset())
        kept = [each for number, each in enumerate(request.same_subtree) if number != self.number]
        return replace(request, same_subtree=tuple(kept))


Removal = GroupRemoval | TreeRemoval


@dataclass(frozen=True)
class AmountChange:
    """An amount that a group requests, which can be changed."""

    suffix: str
    class_id: int
    resource_class: str
    wanted: int

    @property
    def query(self) -> str:
        """The part of the query with this amount."""
        return f"resources{self.suffix}={self.resource_class}:{self.wanted}"

    def untested(self, filters: RequestFilters) -> frozenset[Filter | RootFilter]:
        """Return the filters on the amount, of which the changed request has others.

        If the amount may be split, it decides who supplies it. So the required traits of the group are not
        tested, either.
        """
        return frozenset(
            each
            for group in filters.groups
            if group.suffix == self.suffix
            for each in group.filters
            if (each.has_gap and each.resource_class == self.resource_class)
            or (each.code is FilterCode.REQUIRED and self.resource_class in group.can_split)
        )

    def apply(self, filters: RequestFilters, amount: int | None) -> RequestFilters:
        """Return the filters with another amount, or with None those that test only the inventory.

        `capacity` is not among them: what fits in the free amount fits in the capacity.
        """
        groups = (
            replace(each, filters=tuple(self._filters(each, amount))) if each.suffix == self.suffix else each
            for each in filters.groups
        )
        return replace(filters, groups=tuple(groups))

    def _filters(self, group: GroupFilters, amount: int | None) -> Iterator[Filter]:
        for each in group.filters:
            if each.resource_class != self.resource_class or each.code is FilterCode.INVENTORY:
                yield each
            elif amount is not None and each.code is not FilterCode.CAPACITY:
                condition = AmountCondition(each.code, self.class_id, amount)
                yield replace(each, condition=condition, wanted=amount)

    def change(self, request: CandidatesRequest, amount: int) -> CandidatesRequest:
        """Return the request with another amount."""
        return replace(
            request,
            groups=tuple(
                replace(each, resources={**each.resources, self.resource_class: amount})
                if each.suffix == self.suffix
                else each
                for each in request.groups
            ),
        )


Change = Removal | AmountChange


def single_changes(filters: RequestFilters) -> list[Change]:
    """Return all changes of one filter or amount, in the order of the filters."""
    changes: list[Change] = []
    for group in filters.groups:
        for each in group.filters:
            if each.code is FilterCode.INVENTORY and isinstance(each.condition, AmountCondition):
                assert each.resource_class is not None
                assert each.wanted is not None
                class_id = each.condition.class_id
                changes.append(AmountChange(group.suffix, class_id, each.resource_class, each.wanted))
            elif each.code in REMOVABLE:
                changes.append(GroupRemoval(group.suffix, each))
    changes += [TreeRemoval(each) for each in filters.root_filters]
    changes += [
        TreeRemoval(each, number)
        for number, each in enumerate(filters.combinations)
        if each.code is not FilterCode.SUM
    ]
    return changes


def pairs(changes: Sequence[Change]) -> Iterator[tuple[Removal, Change]]:
    """Yield the pairs of a removal and another change, in the order of the filters."""
    for number, first in enumerate(changes):
        for second in changes[number + 1 :]:
            if not isinstance(first, AmountChange):
                yield first, second
            elif not isinstance(second, AmountChange):
                yield second, first


def is_valid(request: CandidatesRequest) -> bool:
    """Return whether a request whose filters have been removed can be sent.

    Every group that `same_subtree` or `isolate` names must exist, and a `same_subtree` must name each group
    without resources.
    """
    suffixes = frozenset(group.suffix for group in request.groups)
    together = frozenset[str]().union(*(each.suffixes for each in request.same_subtree))
    apart = frozenset[str]().union(*(each.excluded for each in request.same_subtree))
    return (together | apart | request.isolate) <= suffixes and all(
        group.resources or group.suffix in together for group in request.groups
    )
