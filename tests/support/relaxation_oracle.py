"""An oracle for `relaxations` in explanations (`docs/spec/extensions.md 3.5`): it tries every amount."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any

from tests.support.cloud import Cloud, Provider
from tests.support.explanation_oracle import (
    Filter,
    capacity,
    combination_filters,
    filters_of,
    has_candidates,
    root_filters,
)
from tests.support.oracle import Group, Request

MAX_PAIRS = 50


@dataclass(frozen=True)
class Change:
    """A change of a request: `remove` returns the request without a filter; otherwise an amount changes."""

    query: str
    remove: Callable[[Request], Request] | None = None
    suffix: str = ""
    resource_class: str = ""


class RelaxationOracle:
    """The relaxations of a request at some roots."""

    def __init__(self, cloud: Cloud, request: Request, roots: list[Provider]) -> None:
        self.cloud = cloud
        self.request = request
        self.roots = roots
        capacities = [capacity(each) for one in cloud.providers for each in one.inventories.values()]
        self.largest = max(capacities, default=0)

    def relaxations(self) -> list[dict[str, Any]]:
        """Return `relaxations`."""
        changes = list(self.changes())
        found = [entry for change in changes for entry in self.tried([change])]
        if not found:
            both = [
                pair
                for pair in combinations(changes, 2)
                if (pair[0].remove or pair[1].remove) and self.is_valid(pair)
            ]
            found = [entry for pair in islice(both, MAX_PAIRS) for entry in self.tried(pair)]
        return sorted(found, key=lambda entry: -entry["roots"])

    def changes(self) -> Iterator[Change]:
        """Yield all changes in the order of the filters."""
        for group in self.request.groups:
            for one in filters_of(group):
                if one.code == "inventory":
                    yield Change(one.query, None, group.suffix, one.member)
                elif one.code not in ("unit", "capacity", "free"):
                    yield Change(one.query, _removing(group.suffix, one))
        for code, query, _ in root_filters(self.request):
            yield Change(
                query, _without_root_required if code == "root_required" else _without_root_member_of
            )
        for number, (code, query, _) in enumerate(combination_filters(self.request)):
            if code == "same_subtree":
                # Marked now and dropped later, so that the numbers remain the same.
                yield Change(str(query), lambda r, n=number: _mark_subtree(r, n))
            elif code == "group_policy":
                yield Change(str(query), lambda r: replace(r, group_policy="none"))
            elif code == "isolate":
                yield Change(str(query), lambda r: replace(r, isolate=frozenset()))

    def is_valid(self, changes: Any) -> bool:
        changed = self.without(changes)
        suffixes = {group.suffix for group in changed.groups}
        listed = frozenset[str]().union(*changed.same_subtree)
        return {each.removeprefix("!") for each in listed | changed.isolate} <= suffixes and all(
            group.resources or group.suffix in listed for group in changed.groups
        )

    def without(self, changes: Any) -> Request:
        changed = self.request
        for change in changes:
            if change.remove:
                changed = change.remove(changed)
        kept = tuple(suffixes for suffixes in changed.same_subtree if suffixes is not REMOVED)
        # A group without any key does not exist.
        groups = tuple(group for group in changed.groups if group != Group(group.suffix))
        return replace(changed, groups=groups, same_subtree=kept)

    def count(self, request: Request) -> int:
        return sum(has_candidates(self.cloud, request, root) for root in self.roots)

    def tried(self, changes: Any) -> list[dict[str, Any]]:
        """Return the relaxation of these changes, if it is one."""
        if not self.is_valid(changes):
            return []
        changed = self.without(changes)
        removed = [change.query for change in changes if change.remove]
        entry: dict[str, Any] = {}
        if removed:
            entry["without"] = removed[0] if len(removed) == 1 else removed
        for change in changes:
            if not change.remove:
                amount = self.amount(changed, change)
                if amount is None:
                    return []
                entry["instead"] = f"resources{change.suffix}={change.resource_class}:{amount}"
                changed = _with_amount(changed, change, amount)
        roots = self.count(changed)
        return [{**entry, "roots": roots}] if roots > self.count(self.request) else []

    def amount(self, request: Request, change: Change) -> int | None:
        """Return the largest amount below the requested one with candidates, or else the smallest above."""
        group = next(group for group in request.groups if group.suffix == change.suffix)
        wanted = group.resources[change.resource_class]
        for amount in [*range(wanted - 1, 0, -1), *range(wanted + 1, self.largest + 1)]:
            changed = _with_amount(request, change, amount)
            if any(has_candidates(self.cloud, changed, root) for root in self.roots):
                return amount
        return None


REMOVED = frozenset(["removed"])


def _mark_subtree(request: Request, number: int) -> Request:
    same_subtree = list(request.same_subtree)
    same_subtree[number] = REMOVED
    return replace(request, same_subtree=tuple(same_subtree))


def _with_amount(request: Request, change: Change, amount: int) -> Request:
    return replace(
        request,
        groups=tuple(
            replace(group, resources={**group.resources, change.resource_class: amount})
            if group.suffix == change.suffix
            else group
            for group in request.groups
        ),
    )


def _without_root_required(request: Request) -> Request:
    return replace(request, root_required=frozenset(), root_forbidden=frozenset(), root_any=())


def _without_root_member_of(request: Request) -> Request:
    return replace(request, root_member_of=(), root_not_member_of=frozenset())


def _removing(suffix: str, one: Filter) -> Callable[[Request], Request]:
    def of_group(group: Group) -> Group:
        match one.code:
            case "required":
                return replace(group, required=tuple(each for each in group.required if each != one.member))
            case "forbidden_trait":
                return replace(group, forbidden=frozenset())
            case "member_of":
                return replace(group, member_of=tuple(each for each in group.member_of if each != one.member))
            case "forbidden_aggregate":
                return replace(group, not_member_of=frozenset())
        return replace(group, in_tree=None, not_in_tree=frozenset())

    def remove(request: Request) -> Request:
        groups = (of_group(group) if group.suffix == suffix else group for group in request.groups)
        return replace(request, groups=tuple(groups))

    return remove
