"""An oracle for `nearest` in explanations (`docs/spec/extensions.md 3.6`): plain loops over a cloud."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tests.support.cloud import Provider, uuid_of
from tests.support.explanation_oracle import (
    AMOUNT_CODES,
    Explainer,
    Filter,
    amount_passes,
    capacity,
    combination_filters,
    combines,
    filters_of,
    has_candidates,
    passes,
    root_filters,
    unit_fits,
)
from tests.support.oracle import (
    Group,
    anchors,
    in_forbidden_aggregate,
    is_in_tree,
)

GAP_CODES = ("unit", "capacity", "free")
MAX_NEAREST = 10


class NearestOracle:
    """The nearest roots of an explanation."""

    def __init__(self, explainer: Explainer) -> None:
        self.cloud = explainer.cloud
        self.request = explainer.request
        self.roots = explainer.roots

    def nearest(self) -> list[dict[str, Any]]:
        """Return `nearest`."""
        found = []
        for root in self.roots:
            if not has_candidates(self.cloud, self.request, root):
                fails, gap = self.fails(root)
                found.append((len(fails), round(gap, 9), root.uuid, {"root": named(root), "fails": fails}))
        return [entry for *_, entry in sorted(found, key=lambda each: each[:3])[:MAX_NEAREST]]

    def fails(self, root: Provider) -> tuple[list[dict[str, Any]], Fraction]:
        """Return the failing entries of a root, and its gap."""
        entries, gap = [], Fraction(0)
        for group in self.request.groups:
            if not passes(self.cloud, group, root, filters_of(group), self.request.can_split):
                of_group, of_gap = (
                    self.of_suffixed(group, root) if group.suffix else self.of_unsuffixed(group, root)
                )
                entries += of_group
                gap += of_gap
        for code, query, meets in root_filters(self.request):
            if not meets(self.request, root):
                aggregates = [uuid_of(name) for name in root.aggregates]
                has = sorted(root.traits if code == "root_required" else aggregates)
                entries.append(
                    {"suffix": None, "code": code, "query": query, "provider": named(root), "has": has}
                )
        if not entries:
            entries.append(self.combination(root))
        return entries, gap

    def combination(self, root: Provider) -> dict[str, Any]:
        """Return the entry of the first filter on combinations at which nothing is left."""
        filters = combination_filters(self.request)
        for number, (code, query, _) in enumerate(filters):
            if not combines(self.cloud, self.request, root, [each for _, _, each in filters[: number + 1]]):
                return {"suffix": None, "code": code, "query": query, "provider": None, "has": None}
        raise AssertionError("no filter fails")

    def around(self, root: Provider) -> list[Provider]:
        return [provider for provider in self.cloud.providers if root in anchors(self.cloud, provider)]

    def failing(self, group: Group, root: Provider, provider: Provider, name: str | None) -> list[Filter]:
        """Return the filters that a provider fails; with a name, those on this class only."""
        clauses = [one for one in filters_of(group) if one.code == "member_of"]
        of_provider = [one for one in clauses if not one.member & provider.aggregates]
        of_root = [one for one in clauses if not one.member & root.aggregates]
        is_own = self.cloud.root(provider) == root
        if name and is_own and len(of_root) < len(of_provider):
            of_provider = of_root
        failing = []
        for one in filters_of(group):
            if one.code in AMOUNT_CODES:
                inventory = provider.inventories.get(one.member)
                fails = name in (None, one.member)
                if inventory is None:
                    fails = fails and one.code == "inventory"
                else:
                    fails = fails and not amount_passes(one.code, inventory, group.resources[one.member])
            elif one.code == "required":
                fails = name is None and not one.member & provider.traits
            elif one.code == "forbidden_trait":
                fails = bool(provider.traits & group.forbidden)
            elif one.code == "member_of":
                fails = one in of_provider
            elif one.code == "forbidden_aggregate":
                fails = in_forbidden_aggregate(provider, group) or (
                    name is not None and in_forbidden_aggregate(root, group)
                )
            else:
                fails = not is_in_tree(self.cloud, provider, group)
                if name is not None:
                    excluded = group.not_in_tree & {other.name for other in self.cloud.tree(root)}
                    fails = fails or bool(excluded) or (group.in_tree is not None and not is_own)
            if fails:
                failing.append(one)
        return failing

    def gap(self, group: Group, provider: Provider, failing: Sequence[Filter]) -> Fraction:
        total = Fraction(0)
        for one in failing:
            best = self.best(group, provider, one)
            if one.code == "inventory":
                total += 1
            elif one.code in GAP_CODES:
                wanted = group.resources[one.member]
                total += 1 if best is None else Fraction(wanted - best, wanted)
        return total

    def best(self, group: Group, provider: Provider, one: Filter) -> int | None:
        if one.code not in GAP_CODES:
            return None
        inventory, wanted = provider.inventories[one.member], group.resources[one.member]
        if one.code == "unit":
            allowed = [amount for amount in range(1, wanted + 64) if unit_fits(inventory, amount)]
            return min(allowed, key=lambda amount: (abs(amount - wanted), amount), default=None)
        return max(0, capacity(inventory) - (inventory.used if one.code == "free" else 0))

    def of_suffixed(self, group: Group, root: Provider) -> tuple[list[dict[str, Any]], Fraction]:
        around = self.around(root)

        def rank(provider: Provider) -> tuple[Any, ...]:
            failing = self.failing(group, root, provider, None)
            return len(failing), self.gap(group, provider, failing), provider.uuid

        provider = min(around, key=rank)
        failing = self.failing(group, root, provider, None)
        entries = [self.entry(group, root, provider, one, around) for one in failing]
        return entries, self.gap(group, provider, failing)

    def is_split(self, group: Group, root: Provider, name: str) -> bool:
        """Return whether several providers of the tree, but no single one, can supply a class."""
        if name not in self.request.can_split:
            return False
        of_class = replace(group, resources={name: group.resources[name]}, required=())
        return not passes(self.cloud, of_class, root, filters_of(of_class)) and passes(
            self.cloud, of_class, root, filters_of(of_class), self.request.can_split
        )

    def of_unsuffixed(self, group: Group, root: Provider) -> tuple[list[dict[str, Any]], Fraction]:
        around, filters = self.around(root), filters_of(group)
        found: dict[Filter, dict[str, Any]] = {}
        total, first = Fraction(0), None
        shared = [one for one in filters if one.code not in AMOUNT_CODES and one.code != "required"]
        counts_once = len(group.resources) > 1 and shared
        for name in group.resources:
            having = [provider for provider in around if name in provider.inventories]
            is_split = self.is_split(group, root, name)
            if is_split:
                having = [provider for provider in having if self.cloud.root(provider) == root]
            if not having:
                missing = Filter("inventory", filters[list(group.resources).index(name)].query, name)
                found[missing] = self.entry(group, root, None, missing, around)
                total += 1
                continue

            def failing_of(provider: Provider, name: str = name, is_split: bool = is_split) -> list[Filter]:
                failing = self.failing(group, root, provider, name)
                return [one for one in failing if not (is_split and one.code in AMOUNT_CODES)]

            def rank(
                provider: Provider, failing_of: Callable[[Provider], list[Filter]] = failing_of
            ) -> tuple[Any, ...]:
                failing = failing_of(provider)
                gap = self.gap(group, provider, failing)
                if not counts_once:
                    return len(failing), gap, provider.uuid
                new = [number for number, one in enumerate(filters) if one in failing and one not in found]
                return len(failing), len(new), new, gap, provider.uuid

            provider = min(having, key=rank)
            first = first or provider
            failing = failing_of(provider)
            total += self.gap(group, provider, failing)
            for one in failing:
                found.setdefault(one, self.entry(group, root, provider, one, around))
        required = [one for one in filters if one.code == "required"]
        having_any = [provider for provider in around if group.resources.keys() & provider.inventories.keys()]
        unmet = [one for one in required if not any(one.member & each.traits for each in having_any)]
        for one in unmet or ([] if found else required):
            found[one] = self.entry(group, root, first, one, around)
        return [found[one] for one in filters if one in found], total

    def entry(
        self, group: Group, root: Provider, provider: Provider | None, one: Filter, around: Sequence[Provider]
    ) -> dict[str, Any]:
        entry: dict[str, Any] = {"suffix": group.suffix, "code": one.code}
        if one.code in AMOUNT_CODES:
            entry["resource_class"] = one.member
        else:
            entry["query"] = one.query
        if one.code == "inventory":
            if not any(one.member in each.inventories for each in around):
                provider = None
            return {**entry, "provider": named(provider), "has": 0}
        if one.code in GAP_CODES and provider is not None:
            best = self.best(group, provider, one)
            wanted = group.resources[one.member]
            return {**entry, "wanted": wanted, "best": best, "provider": named(provider), "has": best}
        return {**entry, "provider": named(provider), "has": self.has(group, root, provider, one)}

    def has(self, group: Group, root: Provider, provider: Provider | None, one: Filter) -> Any:
        if provider is None:
            return []
        if one.code in ("required", "forbidden_trait"):
            return sorted(provider.traits)
        if one.code == "in_tree":
            return self.cloud.root(provider).uuid
        held = provider.aggregates | (frozenset() if group.suffix else root.aggregates)
        return sorted(uuid_of(name) for name in held)


def named(provider: Provider | None) -> Mapping[str, str] | None:
    return None if provider is None else {"uuid": provider.uuid, "name": provider.name}


def without_has(nearest: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return `nearest` of the whole cloud, in which the entries have no `has`."""
    return [
        {
            "root": each["root"],
            "fails": [{key: value for key, value in one.items() if key != "has"} for one in each["fails"]],
        }
        for each in nearest
    ]


def add_has(body: Mapping[str, Any], nearest: Sequence[Mapping[str, Any]]) -> None:
    """Add `has` and `provider` to the filters that the only root of an explanation fails."""
    for each in nearest:
        for one in each["fails"]:
            if one["suffix"] is None:
                filters = body["tree"]
            else:
                filters = next(
                    group["filters"] for group in body["groups"] if group["suffix"] == one["suffix"]
                )
            key = "query" if "query" in one else "resource_class"
            # A filter that is given twice fails twice.
            for entry in filters:
                if entry["code"] == one["code"] and entry.get(key) == one[key]:
                    entry |= {"has": one["has"], "provider": one["provider"]}
