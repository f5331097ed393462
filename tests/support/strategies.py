"""Hypothesis strategies for small, irregular clouds and for requests that nearly fit them.

A request is drawn for a *target tree*. Each group has a target provider among those that can supply to that
tree. It mostly requests what its target provider has, and sometimes something else. So most responses contain
candidates, and most rules exclude some.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tests.support.cloud import CONSUMERS, MAX_INT, SHARING, Cloud, Inventory, Provider, without_consumers
from tests.support.oracle import Group, Request, anchors, combinations, gives_amount

CLASSES = ["VCPU", "DISK_GB", "SRIOV_NET_VF"]
TRAITS = ["HW_CPU_X86_AVX", "HW_NUMA_ROOT", "STORAGE_DISK_SSD", "COMPUTE_NODE"]
AGGREGATES = ["A", "B", "C"]
NUMBERS = ["1", "2", "3", "10"]
SUFFIXES = ["1", "_NET", "a-b", "01"]
NEWEST = ["1.39"]
OLDER = [f"1.{minor}" for minor in range(10, 39)]
FILTERS = {
    "required": "1.17",
    "required=in": "1.39",
    "forbidden": "1.22",
    "member_of": "1.21",
    "not_member_of": "1.32",
    "in_tree": "1.31",
    "not_in_tree": "1.39",
}
MOST_COMBINATIONS = 3000

_ONE_IN_FOUR = st.integers(0, 3)


def one_in_four(draw: st.DrawFn) -> bool:
    """Draw True in about one of four cases."""
    return draw(_ONE_IN_FOUR) == 3


def subsets(members: Iterable[str], least: int = 0, most: int = 2) -> st.SearchStrategy[frozenset[str]]:
    """Draw a set of `least` to `most` members, or all members if they are fewer."""
    return _subsets(tuple(sorted(members)), least, most)


@cache
def _subsets(members: tuple[str, ...], least: int, most: int) -> st.SearchStrategy[frozenset[str]]:
    sizes = {"min_size": min(least, len(members)), "max_size": min(most, len(members))}
    return st.frozensets(st.sampled_from(members), **sizes) if members else st.just(frozenset())


_IGNORED = subsets([*CONSUMERS, "nobody"], 1)
_IRREGULARITIES = subsets(["reserved", "min_unit", "max_unit", "step_size", "ratio"], 1)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Draw a small inventory, often nearly used up, sometimes over capacity or with nothing allocatable."""
    total = draw(st.sampled_from([4, 8, 2, 3, 1]))
    used = draw(st.integers(1, total + 1)) if one_in_four(draw) else 0
    irregular = draw(_IRREGULARITIES) if draw(st.booleans()) else frozenset()
    return Inventory(
        total,
        reserved=draw(st.integers(1, total)) if "reserved" in irregular else 0,
        min_unit=draw(st.integers(2, 3)) if "min_unit" in irregular else 1,
        max_unit=draw(st.integers(1, 4)) if "max_unit" in irregular else MAX_INT,
        step_size=draw(st.integers(2, 3)) if "step_size" in irregular else 1,
        allocation_ratio=draw(st.sampled_from([0.29, 0.5, 1.25, 1.5, 16.0])) if "ratio" in irregular else 1.0,
        used=used,
        used_by_other=draw(st.integers(0, used)) if used else 0,
    )


@st.composite
def clouds(draw: st.DrawFn) -> Cloud:
    """Draw one to four trees of one to four levels; any provider may be sharing or in aggregates."""
    providers: list[Provider] = []
    for tree in "abcd"[: draw(st.integers(1, 4))]:
        levels = {tree: 1}
        for number in range(draw(st.integers(1, 5))):
            name = f"{tree}{number}" if number else tree
            parents = [other for other, level in levels.items() if level < 4]
            parent = draw(st.sampled_from(parents)) if number else None
            levels[name] = levels[parent] + 1 if parent else 1
            sharing = {SHARING} if one_in_four(draw) else frozenset()
            linked = bool(sharing) or not one_in_four(draw)
            providers.append(
                Provider(
                    name=name,
                    parent=parent,
                    inventories={name: draw(inventories()) for name in sorted(draw(subsets(CLASSES, 0, 3)))},
                    traits=draw(subsets(TRAITS)) | sharing,
                    aggregates=draw(subsets(AGGREGATES)) if linked else frozenset(),
                )
            )
    return Cloud(tuple(providers))


@st.composite
def requests(
    draw: st.DrawFn,
    cloud: Cloud,
    versions: Sequence[str] = NEWEST,
    *,
    may_be_extended: bool = True,
) -> Request:
    """Draw a valid request for the cloud at one of the microversions, with only the keys of that version.

    At 1.39 a request that `may_be_extended` can have the keys of the extensions.
    """
    request = Request((), version=draw(st.sampled_from(versions)))
    extended = may_be_extended and request.since("1.39")
    ignored = draw(_IGNORED) if extended and one_in_four(draw) else frozenset[str]()
    cloud = without_consumers(cloud, ignored)
    target_root = draw(st.sampled_from([provider for provider in cloud.providers if provider.parent is None]))
    serving = [provider for provider in cloud.providers if target_root in anchors(cloud, provider)]
    top = draw(st.sampled_from(cloud.tree(target_root)))
    below = [provider for provider in serving if top in cloud.lineage(provider)]

    known = SUFFIXES if request.since("1.33") else NUMBERS
    suffixes = known[: draw(st.sampled_from([0, 0, 1, 1, 2, 2, 3, 4]))] if request.since("1.25") else []
    targets = below if draw(st.booleans()) else serving
    groups = [draw(_suffixed_group(request, cloud, targets, suffix)) for suffix in suffixes]
    if not any(group.resources for group in groups) or not one_in_four(draw):
        groups.insert(
            draw(st.integers(0, len(groups))), draw(_unsuffixed_group(request, cloud, serving, target_root))
        )

    can_split = frozenset[str]()
    if extended and one_in_four(draw):
        groups, can_split = draw(_split_amounts(cloud.tree(target_root), groups))
    assume(extended or not any(group.not_in_tree for group in groups))
    same_subtree: list[frozenset[str]] = []
    if request.since("1.36") and suffixes and (targets == below or one_in_four(draw)):
        same_subtree = draw(st.lists(subsets(suffixes, 1, 3), max_size=2))
    if extended and draw(st.booleans()):
        same_subtree = [pieces | draw(_excluded(suffixes, pieces)) for pieces in same_subtree]
    resourceless = frozenset(group.suffix for group in groups if not group.resources)
    alone = resourceless.difference(*same_subtree)
    if alone:
        same_subtree.append(alone | draw(subsets(suffixes, 0, 1)))
    required, forbidden = frozenset[str](), frozenset[str]()
    if request.since("1.35"):
        required = draw(subsets(target_root.traits, 1, 1)) if one_in_four(draw) else required
        forbidden = draw(_other_traits(target_root.traits)) - required if one_in_four(draw) else forbidden
    root_any: tuple[frozenset[str], ...] = ()
    if extended and one_in_four(draw):
        sets = draw(st.lists(subsets({*TRAITS, *target_root.traits}, 1, 3), min_size=1, max_size=2))
        root_any = tuple(any_of for any_of in sets if not any_of <= forbidden)
    root_member_of: tuple[frozenset[str], ...] = ()
    if extended and one_in_four(draw):
        own = st.lists(subsets(target_root.aggregates or AGGREGATES, 1), max_size=2)
        root_member_of = tuple(draw(own))
    root_not_member_of = frozenset[str]()
    if extended and one_in_four(draw):
        root_not_member_of = draw(subsets(set(AGGREGATES) - target_root.aggregates or AGGREGATES, 1))
    isolate = draw(subsets(suffixes)) if extended and one_in_four(draw) else frozenset()
    policies = ["none", "isolate"] if len(suffixes) > 1 and not extended else [None, "none", "isolate"]
    request = Request(
        groups=tuple(groups),
        root_required=required,
        root_forbidden=forbidden,
        root_any=root_any,
        root_member_of=root_member_of,
        root_not_member_of=root_not_member_of,
        same_subtree=tuple(same_subtree),
        group_policy=draw(st.sampled_from(policies)) if request.since("1.25") and not isolate else None,
        isolate=isolate,
        limit=draw(st.sampled_from([None, None, 1, 2, 5, 1000])) if request.since("1.16") else None,
        ignore_consumer=ignored,
        version=request.version,
        can_split=can_split,
    )
    return replace(request, **draw(_order(request))) if extended else request


@st.composite
def _split_amounts(
    draw: st.DrawFn, tree: Sequence[Provider], groups: Sequence[Group]
) -> tuple[list[Group], frozenset[str]]:
    """Draw classes that may be split, and for some of them amounts that mostly need a split in the tree."""
    resources = next((group.resources for group in groups if not group.suffix), {})
    can_split = draw(subsets(resources, 1, 3))
    amounts = {}
    for name in sorted(can_split):
        most = [max(_allocatable(provider.inventories.get(name)), default=0) for provider in tree]
        if sum(most) > 1 and draw(st.booleans()):
            amounts[name] = draw(st.integers(min(max(most) + 1, sum(most)), sum(most)))
    changed = [
        group if group.suffix else replace(group, resources={**resources, **amounts}) for group in groups
    ]
    return changed, can_split


@st.composite
def _order(draw: st.DrawFn, request: Request) -> dict[str, Any]:
    """Draw the order of the candidates: in half of the requests none."""
    if draw(st.booleans()):
        return {}
    names = sorted({name for group in request.groups for name in group.resources})
    orders = [None, "random", *(f"{method}:{name}" for method in ("spread", "pack") for name in names)]
    has_unsuffixed = any(not group.suffix for group in request.groups)
    return {
        "preferred": draw(subsets(TRAITS, 0, 3)) if has_unsuffixed else frozenset(),
        "order_by": draw(st.sampled_from(orders)),
    }


@st.composite
def scenarios(
    draw: st.DrawFn,
    versions: Sequence[str] = NEWEST,
    *,
    may_be_extended: bool = True,
) -> tuple[Cloud, list[Request]]:
    """Draw a cloud and requests for it; no request has too many combinations for the oracle."""
    cloud = draw(clouds())
    feasible = requests(cloud, versions, may_be_extended=may_be_extended).filter(
        lambda request: combinations(cloud, request) <= MOST_COMBINATIONS
    )
    return cloud, [draw(feasible) for _ in range(draw(st.integers(1, 10)))]


@st.composite
def scenarios_with_pools(draw: st.DrawFn) -> tuple[Cloud, list[Request]]:
    """Draw hosts, pools that often can supply the same alone, and ordered requests for these classes.

    The best provider of all trees is often a pool. Claims use it up, and then need others.
    """
    providers = []
    for name in [*"abcd"[: draw(st.integers(1, 4))], *"yz"[: draw(st.integers(1, 2))]]:
        is_pool = name in "yz"
        totals = {each: draw(st.sampled_from([4, 2, 6, 8])) for each in sorted(draw(subsets(CLASSES[:2], 1)))}
        providers.append(
            Provider(
                name,
                inventories={each: Inventory(total) for each, total in totals.items()},
                traits=draw(subsets(TRAITS[:2])) | (frozenset([SHARING]) if is_pool else frozenset()),
                aggregates=draw(subsets(AGGREGATES[:2], 1)),
            )
        )
    requests = []
    for _ in range(draw(st.integers(1, 3))):
        amounts = {each: draw(st.integers(1, 3)) for each in sorted(draw(subsets(CLASSES[:2], 1)))}
        request = Request((Group("", amounts),))
        requests.append(replace(request, **draw(_order(request))))
    return Cloud(tuple(providers)), requests


@st.composite
def scenarios_with_ignored_consumers(draw: st.DrawFn) -> tuple[Cloud, list[Request]]:
    """Draw hosts whose inventories are mostly used, and ordered requests that ignore consumers.

    Without these consumers, the hosts are in another order, and more hosts have candidates.
    """
    providers = []
    for host in "abcdef"[: draw(st.integers(2, 6))]:
        for name in (host, f"{host}1")[: draw(st.integers(1, 2))]:
            inventories = {}
            for each in CLASSES[:2]:
                used = draw(st.integers(0, 8))
                inventories[each] = Inventory(8, used=used, used_by_other=draw(st.integers(0, used)))
            traits = draw(subsets(TRAITS[:2]))
            providers.append(Provider(name, None if name == host else host, inventories, traits))
    requests = []
    for _ in range(draw(st.integers(3, 6))):
        amounts = {each: draw(st.integers(1, 6)) for each in sorted(draw(subsets(CLASSES[:2], 1)))}
        orders = [f"{method}:{name}" for method in ("spread", "pack") for name in sorted(amounts)]
        requests.append(
            Request(
                (Group("", amounts),),
                ignore_consumer=draw(_IGNORED),
                preferred=draw(subsets(TRAITS[:2])) if one_in_four(draw) else frozenset(),
                order_by=draw(st.sampled_from(orders)),
                can_split=draw(subsets(amounts)) if one_in_four(draw) else frozenset(),
            )
        )
    return Cloud(tuple(providers)), requests


@st.composite
def scenarios_of_pools(draw: st.DrawFn) -> tuple[Cloud, list[Request]]:
    """Draw pools, some in one tree and some in the tree of a host, and requests of several groups for them.

    A host may supply the same, from itself or from a child that does not share.
    """
    providers = [Provider("a", aggregates=frozenset("A"), inventories=draw(_disks(0)))]
    for name in "vwxyz"[: draw(st.integers(2, 5))]:
        is_pool = not one_in_four(draw)
        providers.append(
            Provider(
                name,
                parent=draw(st.sampled_from([None, *(each.name for each in providers if not each.parent)])),
                inventories=draw(_disks(1)),
                traits=draw(subsets(TRAITS[:1])) | (frozenset([SHARING]) if is_pool else frozenset()),
                aggregates=draw(subsets(AGGREGATES[1:])) | (frozenset("A") if is_pool else frozenset()),
            )
        )
    requests = []
    for _ in range(draw(st.integers(1, 3))):
        suffixes = ["", *SUFFIXES][draw(st.integers(0, 1)) :][: draw(st.integers(2, 4))]
        groups = tuple(Group(suffix, {"DISK_GB": draw(st.integers(1, 3))}) for suffix in suffixes)
        request = Request(
            groups,
            group_policy=draw(st.sampled_from(["none", "none", "isolate"])),
            can_split=frozenset(["DISK_GB"]) if "" in suffixes and one_in_four(draw) else frozenset(),
        )
        requests.append(replace(request, **draw(_order(request))))
    return Cloud(tuple(providers)), requests


def _disks(least: int) -> st.SearchStrategy[dict[str, Inventory]]:
    """Draw the inventory of a pool; with `least` 0, there may be none."""
    disk = st.sampled_from([4, 2, 6, 8]).map(lambda total: {"DISK_GB": Inventory(total)})
    return disk if least else st.just({}) | disk


@st.composite
def _suffixed_group(
    draw: st.DrawFn, request: Request, cloud: Cloud, targets: Sequence[Provider], suffix: str
) -> Group:
    may_be_resourceless = request.since("1.36")
    suppliers = [provider for provider in targets if _suppliable_classes(provider)]
    target = draw(st.sampled_from(targets if may_be_resourceless else suppliers or targets))
    resources = {}
    if not may_be_resourceless or not (one_in_four(draw) or not _suppliable_classes(target)):
        for name in sorted(draw(subsets(_suppliable_classes(target) or CLASSES, 1, 2))):
            resources[name] = draw(_amounts(target.inventories.get(name)))
    filters = draw(_filters(request, cloud, target, target.traits, target.aggregates))
    if not resources and not any(filters.values()):
        filters["required"] = (frozenset([draw(st.sampled_from(sorted(target.traits) or TRAITS))]),)
    return Group(suffix, resources, **filters)


@st.composite
def _unsuffixed_group(
    draw: st.DrawFn, request: Request, cloud: Cloud, serving: Sequence[Provider], target_root: Provider
) -> Group:
    known = {name for provider in serving for name in _suppliable_classes(provider)}
    resources, traits, target = {}, frozenset[str](), target_root
    for name in sorted(draw(subsets(known or CLASSES, 1, 3))):
        suppliers = [provider for provider in serving if name in _suppliable_classes(provider)]
        in_other_trees = [provider for provider in suppliers if cloud.root(provider) != target_root]
        prefers_other_trees = draw(st.booleans())
        target = draw(
            st.sampled_from((in_other_trees if prefers_other_trees else suppliers) or suppliers or serving)
        )
        resources[name] = draw(_amounts(target.inventories.get(name)))
        traits |= target.traits
    return Group("", resources, **draw(_filters(request, cloud, target, traits, target_root.aggregates)))


def _suppliable_classes(provider: Provider) -> list[str]:
    return [name for name, inventory in provider.inventories.items() if _allocatable(inventory)]


def _allocatable(inventory: Inventory | None) -> list[int]:
    return [amount for amount in range(1, 5) if gives_amount(inventory, amount)]


def _amounts(inventory: Inventory | None) -> st.SearchStrategy[int]:
    allocatable = _allocatable(inventory) or [1]
    return st.sampled_from([*allocatable * 3, 1, 2, 3])


@st.composite
def _filters(
    draw: st.DrawFn,
    request: Request,
    cloud: Cloud,
    target: Provider,
    traits: frozenset[str],
    aggregates: frozenset[str],
) -> dict[str, Any]:
    """Draw filters of a group that these traits and aggregates meet, mostly in the target's tree."""
    known = [name for name, version in FILTERS.items() if request.since(version)]
    filters_to_draw = draw(subsets(known, 0, 3))
    filters: dict[str, Any] = {}
    if "required" in filters_to_draw:
        filters["required"] = tuple(frozenset([trait]) for trait in sorted(draw(subsets(traits, 1))))
    if "required=in" in filters_to_draw:
        sets = st.tuples(subsets(traits, 1, 1), subsets(TRAITS, 1)).map(lambda pair: pair[0] | pair[1])
        filters["required"] = (*filters.get("required", ()), *draw(st.lists(sets, min_size=1, max_size=2)))
    if "forbidden" in filters_to_draw:
        forbidden = draw(_other_traits(traits))
        in_conflict = any(any_of <= forbidden for any_of in filters.get("required", ()))
        filters["forbidden"] = frozenset() if in_conflict else forbidden
    if "member_of" in filters_to_draw:
        most = 2 if request.since("1.24") else 1
        member_of = draw(st.lists(subsets(aggregates or AGGREGATES, 1), min_size=1, max_size=most))
        filters["member_of"] = tuple(member_of)
    if "not_member_of" in filters_to_draw:
        filters["not_member_of"] = draw(subsets(set(AGGREGATES) - aggregates or AGGREGATES, 1))
    if "in_tree" in filters_to_draw:
        tree = [provider.name for provider in cloud.tree(target)]
        anywhere = [*(provider.name for provider in cloud.providers), "nowhere"]
        filters["in_tree"] = draw(st.sampled_from(anywhere if one_in_four(draw) else tree))
    if "not_in_tree" in filters_to_draw:
        tree = {provider.name for provider in cloud.tree(target)}
        others = {provider.name for provider in cloud.providers} - tree
        filters["not_in_tree"] = draw(subsets(tree if one_in_four(draw) else {*others, "nowhere"}, 1))
    return filters


def _excluded(suffixes: Iterable[str], pieces: frozenset[str]) -> st.SearchStrategy[frozenset[str]]:
    """Draw pieces of a `same_subtree` with a `!`."""
    return subsets({f"!{suffix}" for suffix in set(suffixes) - pieces}, 1, 2)


def _other_traits(traits: frozenset[str]) -> st.SearchStrategy[frozenset[str]]:
    return subsets({*TRAITS, SHARING} - traits, 1)
