"""An oracle for GET /allocation_candidates: slow, and as close to the specification as possible.

It implements `docs/spec/candidates.md 3` and `4` by trying every combination. Where section 7 describes a
defect of OpenStack Placement, it follows the contract. It uses names instead of uuids;
`response_errors` checks an HTTP response.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations as pairs
from itertools import product
from math import ceil, floor, lcm, prod
from typing import Any
from urllib.parse import urlencode

from tests.support.cloud import SHARING, Cloud, Inventory, Provider, uuid_of, without_consumers


@dataclass(frozen=True)
class Group:
    """A request group. Each set in `required` or `member_of` needs only one of its members."""

    suffix: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None
    not_in_tree: frozenset[str] = frozenset()

    def parameters(self) -> list[tuple[str, str]]:
        """Return the group's query parameters: one `required` for all single traits, one for each `in:`."""
        traits = [*(trait for any_of in self.required if len(any_of) == 1 for trait in any_of)]
        traits += [f"!{trait}" for trait in sorted(self.forbidden)]
        values = {
            "resources": [",".join(f"{name}:{amount}" for name, amount in self.resources.items())],
            "required": [",".join(traits)]
            + ["in:" + ",".join(sorted(any_of)) for any_of in self.required if len(any_of) > 1],
            "member_of": [_uuid_list(any_of) for any_of in self.member_of]
            + [f"!{_uuid_list(self.not_member_of)}" if self.not_member_of else ""],
            "in_tree": self.in_tree_values(),
        }
        return [(key + self.suffix, value) for key, found in values.items() for value in found if value]

    def in_tree_values(self) -> list[str]:
        """Return the values of `in_tree`: the tree, and one for all excluded trees."""
        values = [uuid_of(self.in_tree)] if self.in_tree else []
        return [*values, f"!{_uuid_list(self.not_in_tree)}"] if self.not_in_tree else values


def _uuid_list(names: frozenset[str]) -> str:
    uuids = ",".join(uuid_of(name) for name in sorted(names))
    return f"in:{uuids}" if len(names) > 1 else uuids


@dataclass(frozen=True)
class Request:
    """A valid request; each member of `same_subtree` is the set of the pieces of one such parameter.

    The root has a trait of each set in `root_any` too. It is in an aggregate of each set in `root_member_of`,
    and in none of `root_not_member_of`.
    """

    groups: tuple[Group, ...]
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    root_any: tuple[frozenset[str], ...] = ()
    root_member_of: tuple[frozenset[str], ...] = ()
    root_not_member_of: frozenset[str] = frozenset()
    same_subtree: tuple[frozenset[str], ...] = ()
    group_policy: str | None = None
    isolate: frozenset[str] = frozenset()
    limit: int | None = None
    ignore_consumer: frozenset[str] = frozenset()
    version: str = "1.39"
    preferred: frozenset[str] = frozenset()
    order_by: str | None = None
    can_split: frozenset[str] = frozenset()

    @property
    def is_ordered(self) -> bool:
        """Whether the request has a key that orders the candidates."""
        return bool(self.preferred or self.order_by)

    def since(self, version: str) -> bool:
        """Return whether the request has this microversion or a later one."""
        return int(self.version.removeprefix("1.")) >= int(version.removeprefix("1."))

    @property
    def header(self) -> str:
        """The version to select in the request's header: extended requests name `placement-svc` too."""
        return f"{self.version}, placement-svc 1.0" if self.since("1.39") else self.version

    def root_required_values(self) -> list[str]:
        """Return the values of `root_required`: one for all single traits, and one for each set."""
        single = [*sorted(self.root_required), *(f"!{trait}" for trait in sorted(self.root_forbidden))]
        return [",".join(single)] * bool(single) + ["in:" + ",".join(sorted(one)) for one in self.root_any]

    def root_member_of_values(self) -> list[str]:
        """Return the values of `root_member_of`: one for each set, and one for all forbidden aggregates."""
        forbidden = [f"!{_uuid_list(self.root_not_member_of)}"] * bool(self.root_not_member_of)
        return [_uuid_list(any_of) for any_of in self.root_member_of] + forbidden

    def query(self) -> str:
        """Return the query string."""
        parameters = [pair for group in self.groups for pair in group.parameters()]
        parameters += [("root_required", value) for value in self.root_required_values()]
        parameters += [("root_member_of", value) for value in self.root_member_of_values()]
        parameters += [("same_subtree", ",".join(sorted(suffixes))) for suffixes in self.same_subtree]
        parameters += [("group_policy", self.group_policy)] if self.group_policy else []
        parameters += [("isolate", ",".join(sorted(self.isolate)))] if self.isolate else []
        parameters += [("limit", str(self.limit))] if self.limit else []
        parameters += [("ignore_consumer", uuid_of(name)) for name in sorted(self.ignore_consumer)]
        parameters += [("preferred", ",".join(sorted(self.preferred)))] if self.preferred else []
        parameters += [("order_by", self.order_by)] if self.order_by else []
        parameters += [("can_split", ",".join(sorted(self.can_split)))] if self.can_split else []
        return urlencode(parameters, safe=":,!")


@dataclass(frozen=True)
class Candidate:
    """The content of one entry of `allocation_requests` (`docs/spec/candidates.md 3.11`).

    `amounts` holds (provider, resource class, amount), `mappings` holds (suffix, sorted providers), both by
    name; `mappings` is None if the microversion does not have them.
    """

    amounts: frozenset[tuple[str, str, int]]
    mappings: frozenset[tuple[str, tuple[str, ...]]] | None

    def __str__(self) -> str:
        suppliers = sorted({provider for provider, _, _ in self.amounts})
        amounts = "+".join(
            f"{supplier}({','.join(sorted(f'{c}:{n}' for p, c, n in self.amounts if p == supplier))})"
            for supplier in suppliers
        )
        mappings = "".join(f" {suffix}→{','.join(found)}" for suffix, found in sorted(self.mappings or []))
        return amounts + mappings


@dataclass(frozen=True)
class Choice:
    """The suppliers of a group in a candidate, and each (provider, class, amount) that they supply."""

    providers: frozenset[str]
    amounts: tuple[tuple[str, str, int], ...] = ()


# 3.1 Terms


def gives_amount(inventory: Inventory | None, amount: int) -> bool:
    return (
        inventory is not None
        and inventory.used + amount <= (inventory.total - inventory.reserved) * inventory.allocation_ratio
        and inventory.min_unit <= amount <= inventory.max_unit
        and amount % inventory.step_size == 0
    )


def anchors(cloud: Cloud, provider: Provider) -> list[Provider]:
    linked = [cloud.root(provider)]
    if SHARING in provider.traits:
        linked += [cloud.root(other) for other in cloud.providers if other.aggregates & provider.aggregates]
    return linked


def in_required_aggregates(provider: Provider, group: Group) -> bool:
    return all(any_of & provider.aggregates for any_of in group.member_of)


def in_forbidden_aggregate(provider: Provider, group: Group) -> bool:
    return bool(group.not_member_of & provider.aggregates)


def is_in_tree(cloud: Cloud, provider: Provider, group: Group) -> bool:
    """Return whether the trees of a group allow the provider (`docs/spec/extensions.md 2.6`)."""
    names = {other.name for other in cloud.tree(provider)}
    return (group.in_tree is None or group.in_tree in names) and not group.not_in_tree & names


# 3.2 Unsuffixed group at an anchor


def supplies(
    cloud: Cloud, group: Group, anchor: Provider, provider: Provider, name: str, amount: int
) -> bool:
    return gives_amount(provider.inventories.get(name), amount) and may_supply(cloud, group, anchor, provider)


def may_supply(cloud: Cloud, group: Group, anchor: Provider, provider: Provider) -> bool:
    """Return whether a provider meets rules 2 to 6."""
    in_tree_of_anchor = cloud.root(provider) == anchor
    shared_with_anchor = (
        anchor in anchors(cloud, provider)
        and group.in_tree is None
        and in_required_aggregates(provider, group)
    )
    return (
        (in_tree_of_anchor or shared_with_anchor)  # rule 2
        and is_in_tree(cloud, provider, group)  # rule 3
        and not group.not_in_tree & {other.name for other in cloud.tree(anchor)}
        and (in_required_aggregates(provider, group) or in_required_aggregates(anchor, group))  # rule 4
        and not in_forbidden_aggregate(provider, group)  # rule 5
        and not in_forbidden_aggregate(anchor, group)
        and not provider.traits & group.forbidden  # rule 6
    )


Parts = tuple[tuple[Provider, str, int], ...]
"""The providers that supply a class, and the amount of the class that each supplies."""


def unsuffixed_choices(
    cloud: Cloud, group: Group, anchor: Provider, can_split: frozenset[str] = frozenset()
) -> Iterator[Choice]:
    suppliers: list[list[Parts]] = []
    for name, amount in group.resources.items():
        found: list[Parts] = [
            ((provider, name, amount),)
            for provider in cloud.providers
            if supplies(cloud, group, anchor, provider, name, amount)
        ]
        if not found and name in can_split:
            found = splits(cloud, group, anchor, name, amount)
        suppliers.append(found)
    for chosen in product(*suppliers):
        parts = [part for of_class in chosen for part in of_class]
        traits = frozenset().union(*(provider.traits for provider, _, _ in parts))
        if all(any_of & traits for any_of in group.required):
            yield Choice(
                providers=frozenset(provider.name for provider, _, _ in parts),
                amounts=tuple((provider.name, name, amount) for provider, name, amount in parts),
            )


# can_split (`docs/spec/extensions.md 2.8`)


def splits(cloud: Cloud, group: Group, anchor: Provider, name: str, amount: int) -> list[Parts]:
    """Return the splits of a class that no provider can supply alone."""
    possible = [
        provider
        for provider in cloud.tree(anchor)
        if name in provider.inventories and may_supply(cloud, group, anchor, provider)
    ]
    for size in range(2, len(possible) + 1):
        found = [split for members in pairs(possible, size) if (split := split_among(members, name, amount))]
        if found:
            return found
    return []


def split_among(members: Sequence[Provider], name: str, amount: int) -> Parts | None:
    """Return the part of each provider of a set; None if the set does not suffice."""
    members = sorted(members, key=lambda provider: provider.uuid)
    step = lcm(*(provider.inventories[name].step_size for provider in members))
    low, high = {}, {}
    for provider in members:
        inventory = provider.inventories[name]
        free = floor((inventory.total - inventory.reserved) * inventory.allocation_ratio) - inventory.used
        low[provider.name] = ceil(max(inventory.min_unit, step) / step) * step
        high[provider.name] = floor(min(free, inventory.max_unit) / step) * step
    if any(low[name] > high[name] for name in low):
        return None
    if amount % step or not sum(low.values()) <= amount <= sum(high.values()):
        return None
    parts: list[tuple[Provider, str, int]] = []
    for number, provider in enumerate(members):
        rest = amount - sum(part for _, _, part in parts)
        after = sum(low[other.name] for other in members[number + 1 :])
        parts.append((provider, name, min(high[provider.name], rest - after)))
    return tuple(parts)


# 3.3 Suffixed group with resources at an anchor, 3.4 resourceless suffixed group (D5 and D6 corrected)


def suffixed_choices(cloud: Cloud, group: Group, anchor: Provider) -> Iterator[Choice]:
    for provider in cloud.providers:
        if (
            all(
                gives_amount(provider.inventories.get(name), amount)
                for name, amount in group.resources.items()
            )
            and all(any_of & provider.traits for any_of in group.required)
            and not provider.traits & group.forbidden
            and in_required_aggregates(provider, group)
            and not in_forbidden_aggregate(provider, group)
            and is_in_tree(cloud, provider, group)
            and anchor in anchors(cloud, provider)
        ):
            yield Choice(
                providers=frozenset([provider.name]),
                amounts=tuple((provider.name, name, amount) for name, amount in group.resources.items()),
            )


# 3.6 root_required, and root_member_of (`docs/spec/extensions.md 2.4`)


def meets_root_required(request: Request, root: Provider) -> bool:
    return (
        request.root_required <= root.traits
        and not request.root_forbidden & root.traits
        and all(any_of & root.traits for any_of in request.root_any)
    )


def meets_root_member_of(request: Request, root: Provider) -> bool:
    return all(any_of & root.aggregates for any_of in request.root_member_of) and not (
        request.root_not_member_of & root.aggregates
    )


def allowed_anchors(cloud: Cloud, request: Request) -> list[Provider]:
    return [
        provider
        for provider in cloud.providers
        if provider.parent is None
        and meets_root_required(request, provider)
        and meets_root_member_of(request, provider)
    ]


# 3.7 same_subtree


def in_one_subtree(cloud: Cloud, providers: Iterable[Provider]) -> bool:
    lineages = {provider.name: [p.name for p in cloud.lineage(provider)] for provider in providers}
    return any(all(top in lineage for lineage in lineages.values()) for top in lineages)


def meets_same_subtree(cloud: Cloud, chosen: Mapping[str, Choice], pieces: Iterable[str]) -> bool:
    """Return whether the choices meet a `same_subtree`, also with `!` (`docs/spec/extensions.md 2.3`)."""
    excluded = {piece for piece in pieces if piece.startswith("!")}
    providers = [cloud.provider(name) for piece in set(pieces) - excluded for name in chosen[piece].providers]
    if not in_one_subtree(cloud, providers):
        return False
    top = min(providers, key=lambda provider: len(list(cloud.lineage(provider))))
    return not any(
        top in cloud.lineage(cloud.provider(name))
        for piece in excluded
        for name in chosen[piece.removeprefix("!")].providers
    )


# 3.8 group_policy=isolate


def are_isolated(chosen: Mapping[str, Choice]) -> bool:
    suffixed = [choice.providers for suffix, choice in chosen.items() if suffix]
    return not any(one & other for one, other in pairs(suffixed, 2))


# isolate (`docs/spec/extensions.md 2.2`)


def keep_to_themselves(chosen: Mapping[str, Choice], isolate: Iterable[str]) -> bool:
    return not any(
        chosen[suffix].providers & choice.providers
        for suffix in isolate
        for other, choice in chosen.items()
        if other not in ("", suffix)
    )


# 3.9 Summing


def summed(chosen: Mapping[str, Choice]) -> frozenset[tuple[str, str, int]]:
    sums: Counter[tuple[str, str]] = Counter()
    for choice in chosen.values():
        for provider, name, amount in choice.amounts:
            sums[provider, name] += amount
    return frozenset((provider, name, amount) for (provider, name), amount in sums.items())


def fits_summed(cloud: Cloud, amounts: Iterable[tuple[str, str, int]]) -> bool:
    for supplier, name, amount in amounts:
        inventory = cloud.provider(supplier).inventories[name]
        capacity = (inventory.total - inventory.reserved) * inventory.allocation_ratio
        if inventory.used + amount > capacity or amount > inventory.max_unit:
            return False
    return True


# 3.10 Below 1.29


def uses_one_provider_per_tree(cloud: Cloud, candidate: Candidate) -> bool:
    suppliers = {supplier for supplier, _, _ in candidate.amounts}
    return len({cloud.root(cloud.provider(supplier)).name for supplier in suppliers}) == len(suppliers)


# 3 All candidates


def choices_at(cloud: Cloud, request: Request, anchor: Provider) -> list[list[Choice]]:
    """Return the choices of each group at the anchor (`docs/spec/candidates.md 3.2` to `3.4`)."""
    return [
        list(
            suffixed_choices(cloud, group, anchor)
            if group.suffix
            else unsuffixed_choices(cloud, group, anchor, request.can_split)
        )
        for group in request.groups
    ]


def combinations(cloud: Cloud, request: Request) -> int:
    """Return the number of combinations that `candidates` has to try."""
    cloud = without_consumers(cloud, request.ignore_consumer)
    return sum(
        prod(map(len, choices_at(cloud, request, anchor))) for anchor in allowed_anchors(cloud, request)
    )


def candidates_at(cloud: Cloud, request: Request, anchor: Provider) -> set[Candidate]:
    """Return the candidates around an allowed anchor, as `candidates` does from 1.29 on."""
    found = set()
    for choices in product(*choices_at(cloud, request, anchor)):
        chosen = {group.suffix: choice for group, choice in zip(request.groups, choices, strict=True)}
        amounts = summed(chosen)
        if (
            all(meets_same_subtree(cloud, chosen, pieces) for pieces in request.same_subtree)
            and (request.group_policy != "isolate" or are_isolated(chosen))
            and keep_to_themselves(chosen, request.isolate)
            and fits_summed(cloud, amounts)
        ):
            mappings = frozenset(
                (suffix, tuple(sorted(choice.providers))) for suffix, choice in chosen.items()
            )
            found.add(Candidate(amounts, mappings))
    return found


def candidates(cloud: Cloud, request: Request) -> set[Candidate]:
    """Return all candidates of the request with their mappings, without regard to its limit.

    The cloud is `without_consumers` that the request ignores, as for all functions above but `combinations`.
    """
    found = {
        candidate
        for anchor in allowed_anchors(cloud, request)
        for candidate in candidates_at(cloud, request, anchor)
    }
    if not request.since("1.29"):
        found = {candidate for candidate in found if uses_one_provider_per_tree(cloud, candidate)}
    return found


# Order by `preferred` and `order_by` (`docs/spec/extensions.md 2`)


def rank(cloud: Cloud, request: Request, candidate: Candidate) -> tuple[int, int]:
    """Return the rank of a candidate: lower ones come first."""
    mappings = dict(candidate.mappings)
    unsuffixed = [cloud.provider(name).traits for name in mappings.get("", ())]
    score = len(request.preferred.intersection(frozenset().union(*unsuffixed)))
    method, _, wanted = (request.order_by or "").partition(":")
    free = []
    for supplier, name, _ in candidate.amounts:
        if name == wanted:
            inventory = cloud.provider(supplier).inventories[name]
            capacity = floor((inventory.total - inventory.reserved) * inventory.allocation_ratio)
            free.append(capacity - inventory.used)
    key = {"spread": lambda: -max(free), "pack": lambda: min(free)}.get(method, lambda: 0)()
    return -score, key


Place = set[tuple[tuple[int, int], Candidate]]
"""The candidates that may be at one place of the response, which have the same rank, with this rank."""


def ordered_places(cloud: Cloud, request: Request) -> list[Place]:
    """Return the places of the response: by tree with `order_by`, else by score, and then by tree."""
    trees = ordered_trees(cloud, request)
    if request.order_by:
        return round_robin([places for _, places in trees])
    scores = sorted({rank for _, places in trees for place in places for rank, _ in place})
    by_uuid = [places for _, places in sorted(trees, key=lambda tree: tree[0])]
    return [
        place
        for score in scores
        for place in round_robin(
            [[place for place in places if {rank for rank, _ in place} == {score}] for places in by_uuid]
        )
    ]


def ordered_trees(cloud: Cloud, request: Request) -> list[tuple[str, list[Place]]]:
    """Return the uuids of the trees in their order, with the places of their candidates.

    Each tree has its candidates at places of its own; those of equal rank are in any order there.
    """
    trees = []
    for anchor in allowed_anchors(cloud, request):
        found = candidates_at(cloud, request, anchor)
        if found:
            best = min(rank(cloud, request, candidate) for candidate in found)
            trees.append((best, anchor.uuid, found))
    taken: set[Candidate] = set()
    ordered = []
    for _, uuid, found in sorted(trees, key=lambda tree: tree[:2]):
        new = sorted(rank(cloud, request, candidate) for candidate in found - taken)
        pool = {(rank(cloud, request, candidate), candidate) for candidate in found - taken}
        taken |= found
        ordered.append((uuid, [{pair for pair in pool if pair[0] == each} for each in new]))
    return ordered


def round_robin(queues: Sequence[Sequence[Place]]) -> list[Place]:
    """Return the first place of each queue, then the second of each, and so on."""
    rounds = max(map(len, queues), default=0)
    return [queue[number] for number in range(rounds) for queue in queues if number < len(queue)]


def order_errors(cloud: Cloud, request: Request, listed: Sequence[Candidate]) -> list[str]:
    """Return the errors of the order of candidates, one line each."""
    if not request.is_ordered:
        return []
    if request.order_by == "random":
        return random_order_errors(cloud, request, listed)
    allowed = ordered_places(cloud, request)[: request.limit]
    return [
        f"at place {place}: {candidate} instead of one of {sorted(str(each) for _, each in pairs)}"
        for place, (candidate, pairs) in enumerate(zip(listed, allowed, strict=False))
        if candidate not in {each for _, each in pairs}
    ]


def random_order_errors(cloud: Cloud, request: Request, listed: Sequence[Candidate]) -> list[str]:
    """Return the errors of a random order, one line each.

    Without sharing providers, each candidate belongs to one tree. Then the first candidates are from
    different trees, and the scores of these and of the candidates of each tree descend from the best one.
    """
    if any(SHARING in provider.traits for provider in cloud.providers):
        return []
    by_root: dict[str, list[int]] = {}
    for candidate in listed:
        [root] = {cloud.root(cloud.provider(name)).name for name in suppliers([candidate])}
        by_root.setdefault(root, []).append(rank(cloud, request, candidate)[0])
    best = round_robin([places for _, places in ordered_trees(cloud, replace(request, order_by=None))])
    expected = [min(score for (score, _), _ in pairs) for pairs in best[: len(by_root)]]
    firsts = [scores[0] for scores in by_root.values()]
    in_trees = all(scores == sorted(scores) for scores in by_root.values())
    first_roots = {
        cloud.root(cloud.provider(name)).name
        for candidate in listed[: len(by_root)]
        for name in suppliers([candidate])
    }
    is_right = firsts == expected and in_trees and len(first_roots) == len(by_root)
    return [] if is_right else [f"scores by tree are {by_root}, those of the trees are {expected}"]


# 4 Response


def summary(cloud: Cloud, request: Request, provider: Provider) -> dict[str, Any]:
    """Return the provider's summary in the response, with sorted traits (`docs/spec/candidates.md 4`)."""
    requested = {name for group in request.groups for name in group.resources}
    content: dict[str, Any] = {
        "resources": {
            name: {
                "capacity": floor((inventory.total - inventory.reserved) * inventory.allocation_ratio),
                "used": inventory.used,
            }
            for name, inventory in provider.inventories.items()
            if request.since("1.27") or name in requested
        }
    }
    if request.since("1.17"):
        content["traits"] = sorted(provider.traits)
    if request.since("1.29"):
        content["parent_provider_uuid"] = uuid_of(provider.parent) if provider.parent else None
        content["root_provider_uuid"] = cloud.root(provider).uuid
    return content


def suppliers(found: Iterable[Candidate]) -> set[str]:
    """Return the names of the providers that supply something to some candidate."""
    return {supplier for candidate in found for supplier, _, _ in candidate.amounts}


def summarized(
    cloud: Cloud, request: Request, all_candidates: Iterable[Candidate], returned: Iterable[Candidate]
) -> set[str]:
    """Return the names of the providers that may have a summary in a response with the candidates `returned`.

    From 1.29 on, all of them must have one; before, only the suppliers of `returned` must.
    `all_candidates` holds all candidates.
    """
    trees = [provider.name for name in suppliers(returned) for provider in cloud.tree(cloud.provider(name))]
    return set(trees) if request.since("1.29") else set(trees) & suppliers(all_candidates)


def read_candidate(cloud: Cloud, request: Request, entry: Mapping[str, Any]) -> Candidate:
    """Parse an entry of `allocation_requests` in the format of a microversion (`docs/spec/candidates.md 4`).

    Raises `AssertionError` if the entry has another format, or a provider appears twice in its list.
    """
    names = {provider.uuid: provider.name for provider in cloud.providers}
    assert set(entry) == ({"allocations", "mappings"} if request.since("1.34") else {"allocations"}), entry
    allocations = entry["allocations"]
    if not request.since("1.12"):
        assert all(set(item) == {"resource_provider", "resources"} for item in allocations), entry
        allocations = {
            item["resource_provider"]["uuid"]: {"resources": item["resources"]} for item in allocations
        }
        assert len(allocations) == len(entry["allocations"]), entry
    assert all(set(allocation) == {"resources"} for allocation in allocations.values()), entry
    return Candidate(
        amounts=frozenset(
            (names[uuid], name, amount)
            for uuid, allocation in allocations.items()
            for name, amount in allocation["resources"].items()
        ),
        mappings=frozenset(
            (suffix, tuple(sorted(names[uuid] for uuid in uuids)))
            for suffix, uuids in entry["mappings"].items()
        )
        if request.since("1.34")
        else None,
    )


def response_errors(cloud: Cloud, request: Request, response: Mapping[str, Any]) -> list[str]:
    """Return the errors of a response to the request, one line each; an empty list if it is correct.

    Without a limit the response must contain every candidate once; with one, any min(limit, count) distinct
    candidates; in both cases with the summaries of their providers (`docs/spec/candidates.md 4` and `5`).

    Raises `AssertionError` if an entry does not have the format of the microversion, and `KeyError` if it
    contains an unknown provider.
    """
    cloud = without_consumers(cloud, request.ignore_consumer)
    all_candidates = candidates(cloud, request)
    expected = Counter(
        all_candidates if request.since("1.34") else [replace(one, mappings=None) for one in all_candidates]
    )
    listed = [read_candidate(cloud, request, entry) for entry in response["allocation_requests"]]
    returned = Counter(listed)
    errors = order_errors(cloud, request, listed)
    errors += [f"not a candidate, or returned too often: {candidate}" for candidate in returned - expected]
    count = len(all_candidates) if request.limit is None else min(request.limit, len(all_candidates))
    if returned.total() != count:
        missing = sorted(map(str, expected - returned))
        errors.append(f"{returned.total()} candidates instead of {count}; not returned: {missing}")

    allowed = summarized(cloud, request, all_candidates, returned)
    needed = allowed if request.since("1.29") or request.limit is None else suppliers(returned)
    names = {provider.uuid: provider.name for provider in cloud.providers}
    summaries = {
        names.get(uuid, uuid): _sorted_traits(one) for uuid, one in response["provider_summaries"].items()
    }
    errors += [f"no summary of {name}" for name in sorted(needed - set(summaries))]
    errors += [f"a summary of {name}" for name in sorted(set(summaries) - allowed)]
    for name in allowed & set(summaries):
        expected_summary = summary(cloud, request, cloud.provider(name))
        if summaries[name] != expected_summary:
            errors.append(f"summary of {name}: {summaries[name]} instead of {expected_summary}")
    return errors


def _sorted_traits(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {key: sorted(value) if key == "traits" else value for key, value in summary.items()}
