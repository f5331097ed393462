"""An oracle for GET /allocation_candidates/explanation: plain loops over a cloud in memory.

It implements `docs/spec/extensions.md 3` with the rules of `tests/support/oracle.py`, and tries every
combination.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import floor
from typing import Any

from tests.support.cloud import Cloud, Inventory, Provider, uuid_of
from tests.support.oracle import (
    Choice,
    Group,
    Request,
    anchors,
    are_isolated,
    candidates,
    choices_at,
    fits_summed,
    in_forbidden_aggregate,
    in_required_aggregates,
    is_in_tree,
    keep_to_themselves,
    meets_root_member_of,
    meets_root_required,
    meets_same_subtree,
    split_among,
    summed,
)

AMOUNT_CODES = ("inventory", "unit", "capacity", "free")


@dataclass(frozen=True)
class Filter:
    """A filter of a group; `member` is its resource class or clause, if it has one."""

    code: str
    query: str
    member: Any = None


# 3.1 Filters and their order


def filters_of(group: Group) -> list[Filter]:
    """Return the filters of a group in their order."""

    def key(name: str, value: str) -> str:
        return f"{name}{group.suffix}={value}"

    found = [
        Filter(code, key("resources", f"{name}:{amount}"), name)
        for code in AMOUNT_CODES
        for name, amount in group.resources.items()
    ]
    single = [any_of for any_of in group.required if len(any_of) == 1]
    multiple = [any_of for any_of in group.required if len(any_of) > 1]
    for any_of in dict.fromkeys([*single, *multiple]):
        text = ",".join(sorted(any_of))
        found.append(Filter("required", key("required", f"in:{text}" if len(any_of) > 1 else text), any_of))
    if group.forbidden:
        text = ",".join(f"!{trait}" for trait in sorted(group.forbidden))
        found.append(Filter("forbidden_trait", key("required", text)))
    for any_of in dict.fromkeys(group.member_of):
        found.append(Filter("member_of", key("member_of", _aggregates(any_of)), any_of))
    if group.not_member_of:
        found.append(Filter("forbidden_aggregate", key("member_of", f"!{_aggregates(group.not_member_of)}")))
    if values := group.in_tree_values():
        found.append(Filter("in_tree", "&".join(key("in_tree", value) for value in values)))
    return found


def _aggregates(names: frozenset[str]) -> str:
    uuids = [uuid_of(name) for name in sorted(names)]
    return ",".join(uuids) if len(uuids) == 1 else f"in:{','.join(uuids)}"


# 3.2 Passing


def with_inventories(filters: Sequence[Filter], tested: Iterable[Filter]) -> set[Filter]:
    """Return the tested filters with the `inventory` filters that are always part of them."""
    found = set(tested)
    for one in filters:
        if one.code == "inventory" and any(
            other.member == one.member if other.code in AMOUNT_CODES else True for other in tested
        ):
            found.add(one)
    return found


def capacity(inventory: Inventory) -> int:
    return floor((inventory.total - inventory.reserved) * inventory.allocation_ratio)


def unit_fits(inventory: Inventory, amount: int) -> bool:
    return inventory.min_unit <= amount <= inventory.max_unit and amount % inventory.step_size == 0


def amount_passes(code: str, inventory: Inventory | None, amount: int) -> bool:
    """Return whether an inventory passes one of the filters on amounts."""
    if inventory is None:
        return False
    limit = (inventory.total - inventory.reserved) * inventory.allocation_ratio
    return {
        "inventory": True,
        "unit": unit_fits(inventory, amount),
        "capacity": amount <= limit,
        "free": inventory.used + amount <= limit,
    }[code]


def reduced(group: Group, tested: set[Filter]) -> Group:
    """Return the group with only the tested filters; the amounts are tested separately."""
    codes = {one.code for one in tested}
    return replace(
        group,
        resources={
            name: amount
            for name, amount in group.resources.items()
            if any(one.code == "inventory" and one.member == name for one in tested)
        },
        required=tuple(one.member for one in tested if one.code == "required"),
        forbidden=group.forbidden if "forbidden_trait" in codes else frozenset(),
        member_of=tuple(one.member for one in tested if one.code == "member_of"),
        not_member_of=group.not_member_of if "forbidden_aggregate" in codes else frozenset(),
        in_tree=group.in_tree if "in_tree" in codes else None,
        not_in_tree=group.not_in_tree if "in_tree" in codes else frozenset(),
    )


def supplies_class(
    cloud: Cloud, group: Group, anchor: Provider, provider: Provider, name: str, tested: set[Filter]
) -> bool:
    """Return whether a provider can supply a class of the unsuffixed group, `required` aside."""
    in_tree_of_anchor = cloud.root(provider) == anchor
    shared = (
        anchor in anchors(cloud, provider)
        and group.in_tree is None
        and in_required_aggregates(provider, group)
    )
    return (
        _amounts_pass(group, provider, [name], tested)
        and (in_tree_of_anchor or shared)
        and is_in_tree(cloud, provider, group)
        and not group.not_in_tree & {other.name for other in cloud.tree(anchor)}
        and (in_required_aggregates(provider, group) or in_required_aggregates(anchor, group))
        and not in_forbidden_aggregate(provider, group)
        and not in_forbidden_aggregate(anchor, group)
        and not provider.traits & group.forbidden
    )


def _amounts_pass(group: Group, provider: Provider, names: Iterable[str], tested: set[Filter]) -> bool:
    return all(
        amount_passes(one.code, provider.inventories.get(name), group.resources[name])
        for name in names
        for one in tested
        if one.code in AMOUNT_CODES and one.member == name
    )


def supplies_group(
    cloud: Cloud, group: Group, anchor: Provider, provider: Provider, tested: set[Filter]
) -> bool:
    """Return whether a provider can supply a suffixed group."""
    return (
        _amounts_pass(group, provider, group.resources, tested)
        and all(any_of & provider.traits for any_of in group.required)
        and not provider.traits & group.forbidden
        and in_required_aggregates(provider, group)
        and not in_forbidden_aggregate(provider, group)
        and is_in_tree(cloud, provider, group)
        and anchor in anchors(cloud, provider)
    )


def passes(
    cloud: Cloud,
    group: Group,
    anchor: Provider,
    tested: Iterable[Filter],
    can_split: frozenset[str] = frozenset(),
) -> bool:
    """Return whether a root passes a set of filters of a group."""
    all_tested = with_inventories(filters_of(group), list(tested))
    part = reduced(group, all_tested)
    if group.suffix:
        return any(supplies_group(cloud, part, anchor, provider, all_tested) for provider in cloud.providers)
    suppliers = []
    for name in part.resources:
        found = [[p] for p in cloud.providers if supplies_class(cloud, part, anchor, p, name, all_tested)]
        if not found and name in can_split:
            found = splits_of_class(cloud, part, anchor, name, all_tested)
        suppliers.append(found)
    if not all(suppliers):
        return False
    # Each set of traits that the suppliers of the classes so far can have together.
    reachable = {frozenset[str]()}
    for found in suppliers:
        reachable = {
            traits.union(*(provider.traits for provider in providers))
            for traits in reachable
            for providers in found
        }
    return any(all(any_of & traits for any_of in part.required) for traits in reachable)


def splits_of_class(
    cloud: Cloud, group: Group, anchor: Provider, name: str, tested: set[Filter]
) -> list[list[Provider]]:
    """Return the smallest sets of providers that can supply a class if only these filters are tested."""
    on_amount = {one for one in tested if one.member == name and one.code in ("unit", "capacity", "free")}
    codes = {one.code for one in on_amount}
    possible = [
        replace(provider, inventories={name: tested_part(provider.inventories[name], codes)})
        for provider in cloud.tree(anchor)
        if supplies_class(cloud, group, anchor, provider, name, tested - on_amount)
    ]
    for size in range(2, len(possible) + 1):
        sets = [
            list(members)
            for members in combinations(possible, size)
            if split_among(members, name, group.resources[name])
        ]
        if sets:
            return sets
    return []


def tested_part(inventory: Inventory, codes: set[str]) -> Inventory:
    """Return an inventory that allows what this one allows if only these filters are tested."""
    if "unit" not in codes:
        inventory = replace(inventory, min_unit=1, max_unit=10**6, step_size=1)
    if "free" in codes:
        return inventory
    total = inventory.total if "capacity" in codes else 10**6
    return replace(inventory, total=total, used=0)


# 3.3 Counts


def roots_of(cloud: Cloud) -> list[Provider]:
    return [provider for provider in cloud.providers if provider.parent is None]


def passes_root(request: Request, root: Provider) -> bool:
    return all(meets(request, root) for _, _, meets in root_filters(request))


def requests_twice(request: Request) -> bool:
    counts = Counter(name for group in request.groups for name in group.resources)
    return any(count > 1 for count in counts.values())


Chosen = Mapping[str, Choice]
Check = Callable[[Cloud, Chosen], bool]


def combination_filters(request: Request) -> list[tuple[str, str | None, Check]]:
    """Return code, query and check of each filter of combinations."""
    found: list[tuple[str, str | None, Check]] = []
    for suffixes in request.same_subtree:

        def in_subtree(cloud: Cloud, chosen: Chosen, suffixes: frozenset[str] = suffixes) -> bool:
            return meets_same_subtree(cloud, chosen, suffixes)

        found.append(("same_subtree", f"same_subtree={','.join(sorted(suffixes))}", in_subtree))
    if request.group_policy == "isolate":
        found.append(("group_policy", "group_policy=isolate", lambda _cloud, chosen: are_isolated(chosen)))
    if request.isolate:
        query = f"isolate={','.join(sorted(request.isolate))}"
        isolate = request.isolate
        found.append(("isolate", query, lambda _cloud, chosen: keep_to_themselves(chosen, isolate)))
    if requests_twice(request):
        found.append(("sum", None, lambda cloud, chosen: fits_summed(cloud, summed(chosen))))
    return found


def combines(cloud: Cloud, request: Request, anchor: Provider, checks: Iterable[Check]) -> bool:
    """Return whether some combination of choices at the anchor meets all checks."""
    checks = list(checks)
    for choices in product(*choices_at(cloud, request, anchor)):
        chosen = {group.suffix: choice for group, choice in zip(request.groups, choices, strict=True)}
        if all(check(cloud, chosen) for check in checks):
            return True
    return False


def has_candidates(cloud: Cloud, request: Request, anchor: Provider) -> bool:
    checks = [check for _, _, check in combination_filters(request)]
    return passes_root(request, anchor) and combines(cloud, request, anchor, checks)


def root_filters(request: Request) -> list[tuple[str, str, Callable[[Request, Provider], bool]]]:
    """Return code, query and check of each filter on the root."""
    found = []
    for code, values, meets in (
        ("root_required", request.root_required_values(), meets_root_required),
        ("root_member_of", request.root_member_of_values(), meets_root_member_of),
    ):
        if values:
            found.append((code, "&".join(f"{code}={value}" for value in values), meets))
    return found


class Explainer:
    """The explanation of a request on a cloud; `scope` are the roots that it covers (None: all)."""

    def __init__(self, cloud: Cloud, request: Request, scope: Sequence[Provider] | None = None) -> None:
        self.cloud = cloud
        self.request = request
        self.roots = roots_of(cloud) if scope is None else list(scope)
        self.in_groups = [root for root in self.roots if self.passes_groups(root)]

    def passes(self, group: Group, root: Provider, tested: Iterable[Filter]) -> bool:
        return passes(self.cloud, group, root, tested, self.request.can_split)

    def passes_groups(self, root: Provider, instead: Mapping[str, Iterable[Filter]] | None = None) -> bool:
        """Return whether every group passes all its filters, or those in `instead`, by suffix."""
        return all(
            self.passes(group, root, (instead or {}).get(group.suffix, filters_of(group)))
            for group in self.request.groups
        )

    def amounts(self, group: Group, one: Filter) -> dict[str, Any]:
        """Return `wanted`, `best` and `sum_free` of a filter."""
        if one.code not in ("unit", "capacity", "free"):
            return {}
        wanted = group.resources[one.member]
        scope = [p for p in self.cloud.providers if any(a in self.roots for a in anchors(self.cloud, p))]
        inventories = [p.inventories[one.member] for p in scope if one.member in p.inventories]
        failing = [each for each in inventories if not amount_passes(one.code, each, wanted)]
        if one.code == "unit":
            allowed = [
                amount for each in failing for amount in range(1, wanted + 64) if unit_fits(each, amount)
            ]
            best = min(allowed, key=lambda amount: (abs(amount - wanted), amount), default=None)
            return {"wanted": wanted, "best": best}
        values = [max(0, capacity(each) - (each.used if one.code == "free" else 0)) for each in failing]
        entry: dict[str, Any] = {"wanted": wanted, "best": max(values, default=None)}
        if one.code == "free":
            entry["sum_free"] = sum(values) if values else None
        return entry

    def group_entry(self, group: Group, index: int) -> dict[str, Any]:
        """Return the entry of one filter of a group."""
        filters = filters_of(group)
        one = filters[index]
        counts = {
            "alone": sum(self.passes(group, root, [one]) for root in self.roots),
            "left": sum(self.passes(group, root, filters[: index + 1]) for root in self.roots),
            "sole_blocker": sum(self.is_sole_blocker(group, one, root) for root in self.roots),
        }
        named = {"resource_class": one.member} if one.code in AMOUNT_CODES else {}
        return {"code": one.code, "query": one.query, **named, **counts, **self.amounts(group, one)}

    def is_sole_blocker(self, group: Group, one: Filter, root: Provider) -> bool:
        if one.code == "inventory" or not passes_root(self.request, root):
            return False
        filters = filters_of(group)
        without = [each for each in filters if each != one]
        blocked = filters
        if one.code == "capacity":
            without = [each for each in without if (each.code, each.member) != ("free", one.member)]
            blocked = [each for each in filters if (each.code, each.member) != ("free", one.member)]
        return self.passes_groups(root, {group.suffix: without}) and not self.passes_groups(
            root, {group.suffix: blocked}
        )

    def tree_entries(self) -> list[dict[str, Any]]:
        """Return the entries of `tree`."""
        left = self.in_groups
        entries = [
            {"code": "groups", "query": None, "alone": len(left), "left": len(left), "sole_blocker": 0}
        ]
        in_root_filters = [root for root in left if passes_root(self.request, root)]
        for code, query, meets in root_filters(self.request):
            others = [other for _, _, other in root_filters(self.request) if other != meets]
            sole = [
                root
                for root in self.in_groups
                if all(other(self.request, root) for other in others) and not meets(self.request, root)
            ]
            left = [root for root in left if meets(self.request, root)]
            entries.append(
                {
                    "code": code,
                    "query": query,
                    "alone": sum(meets(self.request, root) for root in self.roots),
                    "left": len(left),
                    "sole_blocker": len(sole),
                }
            )
        all_filters = combination_filters(self.request)
        for number, (code, query, check) in enumerate(all_filters):
            before = [each for _, _, each in all_filters[: number + 1]]
            others = [each for other, (_, _, each) in enumerate(all_filters) if other != number]
            left = [root for root in left if combines(self.cloud, self.request, root, before)]
            sole = [
                root
                for root in in_root_filters
                if combines(self.cloud, self.request, root, others)
                and not has_candidates(self.cloud, self.request, root)
            ]
            alone = [root for root in self.in_groups if combines(self.cloud, self.request, root, [check])]
            entries.append(
                {
                    "code": code,
                    "query": query,
                    "alone": len(alone),
                    "left": len(left),
                    "sole_blocker": len(sole),
                }
            )
        return entries

    def first_failures(self) -> list[tuple[str, str, int]]:
        """Return suffix, code and count of the filters at which roots fail first, in their order."""
        counts: list[tuple[str, str, int]] = []
        left = len(self.roots)
        passing = self.roots
        for group in self.request.groups:
            filters = filters_of(group)
            for index, one in enumerate(filters):
                still = [
                    root
                    for root in passing
                    if self.passes(group, root, filters[: index + 1]) or self.passes(group, root, filters)
                ]
                counts.append((group.suffix, one.code, len(passing) - len(still)))
                passing = still
        left = len(passing)
        for entry in self.tree_entries():
            counts.append(("", entry["code"], left - entry["left"]))
            left = entry["left"]
        return [one for one in counts if one[2]]

    def explain(self) -> dict[str, Any]:
        """Return the counts, `kind` and `code`."""
        groups = [
            {
                "suffix": group.suffix,
                "filters": [self.group_entry(group, index) for index in range(len(filters_of(group)))],
            }
            for group in self.request.groups
        ]
        tree = self.tree_entries()
        failures: Counter[str] = Counter()
        for suffix, code, count in self.first_failures():
            failures[f"{suffix} {code}" if suffix else code] += count
        with_candidates = sum(has_candidates(self.cloud, self.request, root) for root in self.roots)
        entries = [entry for group in groups for entry in group["filters"]] + tree
        return {
            "has_candidates": with_candidates > 0,
            "kind": None if with_candidates else self.kind(),
            "code": self.code(entries, with_candidates > 0),
            "groups": groups,
            "tree": tree,
            "roots": {
                "total": len(self.roots),
                "more": False,
                "with_candidates": with_candidates,
                "by_first_failure": dict(failures),
            },
        }

    # 3.4 kind and code

    def code(self, entries: Sequence[Mapping[str, Any]], has_any: bool) -> str | None:
        best = max(entries, key=lambda entry: entry["sole_blocker"])
        if best["sole_blocker"]:
            return str(best["code"])
        failures = self.first_failures()
        return failures[-1][1] if failures and not has_any else None

    def kind(self) -> str:
        for group in self.request.groups:
            possible = [one for one in filters_of(group) if one.code in ("inventory", "unit", "capacity")]
            if not any(self.passes(group, root, possible) for root in self.roots):
                return "impossible"
        unused = unused_cloud(self.cloud)
        roots = [unused.provider(root.name) for root in self.roots]
        if any(has_candidates(unused, self.request, root) for root in roots):
            return "fragmented" if self.is_fragmented() else "full"
        suitable = [root for root in roots if passes_root(self.request, root)]
        if all(
            any(passes(unused, group, root, filters_of(group), self.request.can_split) for root in suitable)
            for group in self.request.groups
        ):
            return "combination"
        return "filtered"

    def is_fragmented(self) -> bool:
        wanted: Counter[str] = Counter()
        for group in self.request.groups:
            wanted.update(group.resources)
        return all(self.free_of(name) >= amount for name, amount in wanted.items())

    def free_of(self, name: str) -> int:
        """Return what is free of a class on the providers that pass every filter but `free`, each once."""
        total = 0
        for provider in self.cloud.providers:
            if any(
                self.passes_but_free(group, root, provider, name)
                for group in self.request.groups
                if name in group.resources
                for root in self.roots
            ):
                inventory = provider.inventories[name]
                total += max(0, capacity(inventory) - inventory.used)
        return total

    def passes_but_free(self, group: Group, root: Provider, provider: Provider, name: str) -> bool:
        tested = {one for one in filters_of(group) if one.code != "free"}
        if group.suffix:
            return supplies_group(self.cloud, group, root, provider, tested)
        if name in self.request.can_split and self.cloud.root(provider) == root:
            # Any part counts.
            inventory = provider.inventories.get(name)
            if inventory is None or not any(
                unit_fits(inventory, amount) for amount in range(1, capacity(inventory) + 1)
            ):
                return False
            tested = {one for one in tested if one.code not in ("unit", "capacity")}
        return supplies_class(self.cloud, group, root, provider, name, tested)


def unused_cloud(cloud: Cloud) -> Cloud:
    """Return the cloud without any allocations."""
    return Cloud(
        tuple(
            replace(
                provider,
                inventories={name: replace(each, used=0) for name, each in provider.inventories.items()},
            )
            for provider in cloud.providers
        )
    )


# 3.5 Relaxations


def roots_with_candidates(cloud: Cloud, request: Request) -> int:
    """Return the number of roots with candidates."""
    return sum(has_candidates(cloud, request, root) for root in roots_of(cloud))


def returned_roots(cloud: Cloud, request: Request) -> int:
    """Return the number of different roots among the suppliers of all candidates."""
    names = {
        name
        for candidate in candidates(cloud, request)
        for _, providers in candidate.mappings or ()
        for name in providers
    }
    return len({cloud.root(cloud.provider(name)).name for name in names})
