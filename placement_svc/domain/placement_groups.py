"""Placement groups: rules on where the members of a group are (`docs/spec/extensions.md 5.2`).

The *domain* of a root is the root itself or one of the aggregates that the group lists. A member has the
domains of its roots: mostly one. None stands for a root that is in none of the listed aggregates.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import le

AFFINITY = "affinity"
ANTI_AFFINITY = "anti-affinity"
SOFT = "soft-"

HARD_POLICIES = (AFFINITY, ANTI_AFFINITY)
POLICIES = (*HARD_POLICIES, *(SOFT + policy for policy in HARD_POLICIES))

Domain = str | None
Domains = Collection[Domain]

SoftRank = tuple[bool, bool, int]
"""The rank of a set of domains under a soft policy: see `Occupancy.rank`."""


@dataclass(frozen=True)
class PlacementGroup:
    """A group and its policy.

    `max_per_domain` is None for the affinity policies. `aggregates` are the domains, in their order; with
    None, each root is a domain.
    """

    uuid: str
    policy: str
    max_per_domain: int | None
    aggregates: Sequence[str] | None

    @property
    def is_soft(self) -> bool:
        """Whether the policy ranks domains, and excludes none."""
        return self.policy.startswith(SOFT)

    @property
    def is_anti_affinity(self) -> bool:
        """Whether the policy separates the members."""
        return self.policy.endswith(ANTI_AFFINITY)


@dataclass(frozen=True)
class SizedGroup:
    """A group and the number of its members."""

    group: PlacementGroup
    member_count: int


@dataclass(frozen=True)
class GroupMember:
    """A consumer in a group: its roots by uuid and by id, and their domains."""

    consumer_uuid: str
    roots: Sequence[str]
    root_ids: Sequence[int]
    domains: frozenset[Domain]


class Occupancy:
    """How many members each domain of a group has."""

    def __init__(self, group: PlacementGroup, members: Iterable[Domains] = ()) -> None:
        self._group = group
        self._members = Counter[str]()
        self._most = 0
        listed = group.aggregates or ()
        self._a_fullest = next(iter(listed), None)
        """A domain that no other one exceeds."""
        self._emptiest = sorted((0, domain) for domain in listed) if group.is_anti_affinity else []
        """A heap of the listed aggregates; each has as many members as its entry says, or more."""
        for domains in members:
            self.add(domains)

    def add(self, domains: Domains) -> None:
        """Count one more member in these domains."""
        for domain in domains:
            if domain is not None:
                self._members[domain] += 1
                if self._members[domain] > self._most:
                    self._most, self._a_fullest = self._members[domain], domain

    @property
    def fullest(self) -> set[str]:
        """The domains that have more members than the others: several if they have equally many."""
        return {domain for domain, count in self._members.items() if count == self._most}

    def best_listed(self) -> Domain:
        """Return one of the aggregates that the group lists which no other one of them precedes by rank."""
        if not self._group.is_anti_affinity:
            return self._a_fullest
        count, domain = self._emptiest[0]
        while count < self._members[domain]:
            heapq.heapreplace(self._emptiest, (self._members[domain], domain))
            count, domain = self._emptiest[0]
        return domain

    def allows(self, domains: Domains) -> bool:
        """Return whether the policy is kept by one more member in these domains.

        Affinity keeps all members in one domain. If they are in several, a further one must be where most
        of them are.
        """
        if None in domains:
            return False
        counts = [self._members[domain] for domain in domains if domain is not None]
        if self._group.max_per_domain is not None:
            return max(counts) < self._group.max_per_domain
        return len(domains) == 1 and counts[0] == self._most

    def keeping_sets(self, domains: Iterable[Domain]) -> Sequence[frozenset[Domain]]:
        """Return disjoint sets of these domains: a set keeps the policy if it is a subset of one of them."""
        keeping = [domain for domain in domains if self.allows([domain])]
        if self._group.is_anti_affinity:
            return [frozenset(keeping)]
        return [frozenset([domain]) for domain in keeping]

    def rank(self, domains: Domains) -> SoftRank:
        """Return the rank of these domains for one more member; the lowest is best under a soft policy.

        Those that keep the policy are first, those of a root without a domain last. Among the others,
        affinity prefers many members, anti-affinity few.
        """
        counts = [0 if domain is None else self._members[domain] for domain in domains]
        preference = max(counts) if self._group.is_anti_affinity else self._most - min(counts)
        return not self.allows(domains), None in domains, preference

    def levels(self, domains: Collection[Domain]) -> Iterator[tuple[SoftRank, Sequence[frozenset[Domain]]]]:
        """Yield ranks under a soft policy, the best ones first, each with disjoint sets of these domains.

        No subset of them has a worse rank. Each set of domains is a subset of one that comes with its rank.
        """
        of_one = {domain: self.rank([domain]) for domain in domains}
        if not self._group.is_anti_affinity:
            yield (False, False, 0), self.keeping_sets(domains)
            # Several domains never keep the policy.
            of_one = {domain: (True, *rank[1:]) for domain, rank in of_one.items()}
        # Now each part of a rank is the greatest of this part of the ranks of the single domains.
        flags = {rank[:2] for rank in of_one.values()}
        preferences = {rank[2] for rank in of_one.values()}
        for (breaks, lacks_domain), preference in sorted(itertools.product(flags, preferences)):
            level = breaks, lacks_domain, preference
            yield level, [frozenset(domain for domain, rank in of_one.items() if all(map(le, rank, level)))]


def violations(group: PlacementGroup, members: Mapping[str, Domains]) -> list[str]:
    """Return the members, by uuid, that the policy would not allow where they are, given all others.

    Anti-affinity: all members of a domain with too many. Affinity: those outside of the domain that has more
    members than any other, and all if there is no such domain. Members in no domain, in both cases.
    """
    counts = Counter(domain for domains in members.values() for domain in domains if domain is not None)
    if group.max_per_domain is not None:
        crowded = {None, *(domain for domain, count in counts.items() if count > group.max_per_domain)}
        return sorted(uuid for uuid, domains in members.items() if not crowded.isdisjoint(domains))
    first, second = [*counts.most_common(2), ("", 0), ("", 0)][:2]
    fullest = {first[0]} if first[1] > second[1] else set[Domain]()
    return sorted(uuid for uuid, domains in members.items() if set(domains) != fullest)
