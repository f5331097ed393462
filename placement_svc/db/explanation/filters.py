"""The filters of a request with ids, from the criteria of its search."""

from collections.abc import Iterator

from placement_svc.db.search.criteria import ResolvedMembership, SearchCriteria, SupplierCriteria
from placement_svc.domain.demands import demands_of
from placement_svc.domain.explanation.filters import (
    AMOUNT_CODES,
    AggregateCondition,
    AmountCondition,
    Condition,
    Filter,
    FilterCode,
    GroupFilters,
    GroupTexts,
    QueryTexts,
    RootFilter,
    TraitCondition,
    TreeCondition,
)
from placement_svc.domain.groups import CandidatesRequest, RequestGroup


def group_filters(
    request: CandidatesRequest, criteria: SearchCriteria, texts: QueryTexts
) -> tuple[GroupFilters, ...]:
    """Return the filters of each group, in the order of `docs/spec/extensions.md 3.1`."""
    by_demand = iter(criteria.by_demand)
    groups = []
    for group in request.groups:
        all_criteria = [next(by_demand) for _ in demands_of(group)]
        filters = (
            _amount_filters(group, all_criteria),
            _other_filters(group, criteria, all_criteria[0], texts),
        )
        groups.append(
            GroupFilters(
                group.suffix,
                tuple(each for part in filters for each in part),
                frozenset() if group.suffix else request.can_split,
            )
        )
    return tuple(groups)


def root_filters(criteria: SearchCriteria, texts: QueryTexts) -> tuple[RootFilter, ...]:
    """Return the filters on the root that the request has, in their order."""
    traits, aggregates = criteria.root_required, criteria.root_member_of
    filters = (
        RootFilter(FilterCode.ROOT_REQUIRED, texts.root_required, _conditions(TraitCondition, traits)),
        RootFilter(
            FilterCode.ROOT_MEMBER_OF, texts.root_member_of, _conditions(AggregateCondition, aggregates)
        ),
    )
    return tuple(each for each in filters if each.query)


def _conditions(
    kind: type[TraitCondition] | type[AggregateCondition], membership: ResolvedMembership
) -> tuple[Condition, ...]:
    """Return the conditions on single providers that a membership consists of."""
    conditions = [kind(ids) for ids in membership.any_of]
    if membership.forbidden:
        conditions.append(kind(membership.forbidden, forbidden=True))
    return tuple(conditions)


def _amount_filters(group: RequestGroup, all_criteria: list[SupplierCriteria]) -> Iterator[Filter]:
    class_ids = [class_id for criteria in all_criteria for class_id, _ in criteria.resources]
    for code in AMOUNT_CODES:
        for (name, amount), class_id in zip(group.resources.items(), class_ids, strict=True):
            tested_amount = 0 if code is FilterCode.INVENTORY else amount
            yield Filter(
                code,
                f"resources{group.suffix}={name}:{amount}",
                AmountCondition(code, class_id, tested_amount),
                resource_class=name,
                wanted=amount,
            )


def _other_filters(
    group: RequestGroup, criteria: SearchCriteria, supplier: SupplierCriteria, texts: QueryTexts
) -> Iterator[Filter]:
    of_group = texts.groups.get(group.suffix, GroupTexts())
    required = supplier.required.any_of if group.suffix else criteria.rules.unsuffixed_required
    by_names = dict(zip(group.required.any_of, required, strict=True))
    for names, ids in by_names.items():
        yield Filter(FilterCode.REQUIRED, of_group.required[names], TraitCondition(ids))
    if group.required.forbidden:
        condition: Condition = TraitCondition(supplier.required.forbidden, forbidden=True)
        yield Filter(FilterCode.FORBIDDEN_TRAIT, of_group.forbidden_trait, condition)
    for names, ids in dict(zip(group.member_of.any_of, supplier.member_of.any_of, strict=True)).items():
        yield Filter(FilterCode.MEMBER_OF, of_group.member_of[names], AggregateCondition(ids))
    if group.member_of.forbidden:
        condition = AggregateCondition(supplier.member_of.forbidden, forbidden=True)
        yield Filter(FilterCode.FORBIDDEN_AGGREGATE, of_group.forbidden_aggregate, condition)
    if group.in_tree is not None or group.not_in_tree:
        condition = TreeCondition(supplier.in_tree, supplier.not_in_tree)
        yield Filter(FilterCode.IN_TREE, of_group.in_tree, condition)
