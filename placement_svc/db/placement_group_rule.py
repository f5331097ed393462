"""A placement group as the rule of one call of POST /claims (`docs/spec/extensions.md 5.2`)."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sqlalchemy import Connection

from placement_svc.db import placement_groups
from placement_svc.domain.placement_groups import Domain, Occupancy, PlacementGroup
from placement_svc.domain.placing.placements import Placements
from placement_svc.domain.placing.rule import RuleRank

NO_RANK: RuleRank = ()
"""The rank of all roots that a hard policy does not exclude."""

EMPTY_ROOT = ""
"""The domain of a root without members, in a group whose domains are roots."""


class PlacementGroupRule:
    """Keeps the policy of a placement group; see `placement_svc.db.placing.stored_rule.StoredRule`.

    With affinity and several domains to choose from, each run tries one of them.
    """

    ranks_roots = False
    tries_domains = False
    favored_ids: Collection[int] = ()

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid

    @property
    def group(self) -> PlacementGroup:
        """The group, since `start`."""
        return self._group

    def lock(self, connection: Connection) -> None:
        """Lock the group; raise `UnknownPlacementGroup`."""
        placement_groups.lock(connection, self.uuid)

    def start(self, connection: Connection, consumer_uuids: Collection[str]) -> None:
        """Read the group and where its members are, except for these consumers.

        Raises `UnknownPlacementGroup`.
        """
        found = placement_groups.find(connection, self.uuid)
        if found is None:
            raise placement_groups.unknown(self.uuid)
        self._group_id, self._group = found
        own = frozenset(consumer_uuids)
        others = [
            member
            for member in placement_groups.members(connection, self._group_id)
            if member.consumer_uuid not in own
        ]
        self._others = [member.domains for member in others]
        self._domain_by_root: dict[int, Domain] = {}
        self._roots_by_domain = defaultdict[Domain, list[int]](list)
        self._occupancy = Occupancy(self._group, self._others)
        self._chosen: frozenset[Domain] | None = None
        self._tried: set[Domain] = set()
        is_affinity = not self._group.is_anti_affinity
        chooses_one = is_affinity and not self._group.is_soft and len(self._occupancy.fullest) != 1
        self.tries_domains = chooses_one and len(own) > 1
        self.ranks_roots = self._group.is_soft
        has_favorites = is_affinity and self._group.aggregates is None
        self.favored_ids = {id_ for member in others for id_ in member.root_ids} if has_favorites else ()

    def load_roots(self, connection: Connection, root_ids: Collection[int]) -> None:
        """Read the domains of roots."""
        unknown = set(root_ids).difference(self._domain_by_root)
        for root_id, domain in placement_groups.domains(connection, self._group_id, unknown).items():
            self._domain_by_root[root_id] = domain
            self._roots_by_domain[domain].append(root_id)

    def rank(self, root_ids: frozenset[int]) -> RuleRank | None:
        """Return the rank of these roots for the next consumer; None if the policy excludes them."""
        domains = self._domains(root_ids)
        if self._group.is_soft:
            return self._occupancy.rank(domains)
        return NO_RANK if self._allows_in_run(domains) and self._occupancy.allows(domains) else None

    def domain(self, root_id: int) -> Domain:
        """Return the domain of a root."""
        return self._domain_by_root[root_id]

    def best_unread(self) -> RuleRank | None:
        """Return the best rank for the next consumer that a root can have which the search has not read.

        If roots are the domains, those with members are favored, or no better than others; all others have
        none. Otherwise, each domain may have roots that the search has not looked at, also that of a run.
        """
        aggregates = self._group.aggregates
        if self._chosen is not None:
            return None if aggregates is None else NO_RANK
        # No policy prefers a root in none of the aggregates.
        best = [EMPTY_ROOT if aggregates is None else self._occupancy.best_listed()]
        if self._group.is_soft:
            return self._occupancy.rank(best)
        return NO_RANK if self._occupancy.allows(best) else None

    def levels(self, root_ids: Iterable[int]) -> Iterator[tuple[RuleRank, Sequence[frozenset[int]]]]:
        """Yield ranks of sets of these roots for the next consumer, the best ones first, with these sets."""
        roots_by_domain = defaultdict[Domain, list[int]](list)
        for root_id in root_ids:
            roots_by_domain[self._domain_by_root[root_id]].append(root_id)
        levels: Iterable[tuple[RuleRank, Sequence[frozenset[Domain]]]]
        if self._group.is_soft:
            levels = self._occupancy.levels(roots_by_domain)
        else:
            allowed = [domain for domain in roots_by_domain if self._allows_in_run(frozenset([domain]))]
            levels = [(NO_RANK, self._occupancy.keeping_sets(allowed))]
        for rank, sets in levels:
            root_lists = ([roots_by_domain[domain] for domain in domains] for domains in sets)
            yield rank, [frozenset(itertools.chain(*lists)) for lists in root_lists]

    def record(self, root_ids: frozenset[int]) -> Collection[int]:
        """Record a placement; return the roots whose ranks may now be better."""
        domains = self._domains(root_ids)
        improve = self._group.is_soft and not self._group.is_anti_affinity
        # With soft affinity, a new member improves the rank of a domain that did not have the most members.
        improved = [each for each in domains if improve and not self._occupancy.allows([each])]
        self._occupancy.add(domains)
        return [root_id for domain in improved for root_id in self._roots_by_domain[domain]]

    def begin_run(self, root_ids: frozenset[int]) -> Collection[int]:
        """Exclude all domains but that of these roots; return the roots in it."""
        self._chosen = self._domains(root_ids)
        return [root_id for domain in self._chosen for root_id in self._roots_by_domain[domain]]

    def end_run(self) -> None:
        """Forget the placements of the run, and exclude its domain from now on."""
        self._tried.update(self._chosen or ())
        self._chosen = None
        self._occupancy = Occupancy(self._group, self._others)

    def save(self, connection: Connection, placements: Placements, consumer_ids: Mapping[str, int]) -> None:
        """Make the placed consumers members of the group."""
        placed = [consumer_ids[claim.consumer_uuid] for claim in placements.claims]
        placement_groups.set_members(connection, self._group_id, placed)

    def violations(self, placements: Placements) -> list[str]:
        """Return the consumers that were placed against a soft policy, in the order of their placement."""
        occupancy = Occupancy(self._group, self._others)
        found = []
        for placement in placements.placed:
            domains = self._domains(placement.root_ids)
            if not occupancy.allows(domains):
                found.append(placement.claim.consumer_uuid)
            occupancy.add(domains)
        return found

    def _allows_in_run(self, domains: frozenset[Domain]) -> bool:
        """Return whether the present run may use these domains: it tries one, if affinity has to choose."""
        return self._tried.isdisjoint(domains) and self._chosen in (None, domains)

    def _domains(self, root_ids: frozenset[int]) -> frozenset[Domain]:
        return frozenset(self._domain_by_root[root_id] for root_id in root_ids)
