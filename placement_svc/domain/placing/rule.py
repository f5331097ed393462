"""Rules that restrict or rank the roots on which the consumers of one call are placed.

A placement group is such a rule (`docs/spec/extensions.md 5`). The search asks it about roots and tells it
of each placement; it never sees amounts.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Protocol

RuleRank = tuple[int, ...]
"""A position in the order of preference: smaller ranks are better, and a rank comes before any `order_by`.

All ranks of one rule have the same length.
"""


class PlacementRule(Protocol):
    """A condition on the roots of consumers, in memory.

    The *roots* of a consumer are the ids of the roots of its suppliers without MISC_SHARES_VIA_AGGREGATE; if
    there are none, those of all its suppliers. They are usually the anchor alone.

    The placer calls `rank` for the next consumer, and `record` when it has placed one; never in between for
    another consumer. A rank may become worse with each placement, without notice: the placer asks again
    before it uses it. `record` has to name the roots whose ranks become better. A root that `rank` excludes
    must stay excluded until the end of the run, because the placer forgets trees without candidates.
    """

    ranks_roots: bool
    """False if `rank` returns the same rank for all roots that it does not exclude."""

    favored_ids: Collection[int]
    """Roots that may have better ranks than all others, as far as they are known from the beginning.

    The search looks at them first.
    """

    tries_domains: bool
    """Whether all consumers have to be in one domain, a set of roots, and there are several to try.

    Then the search tries the domains one after the other, each in a run.
    """

    def rank(self, root_ids: frozenset[int]) -> RuleRank | None:
        """Return the rank of these roots for the next consumer; None if the rule excludes them."""

    def domain(self, root_id: int) -> Hashable:
        """Return the domain of a root: roots of one domain always have the same rank."""

    def best_unread(self) -> RuleRank | None:
        """Return the best rank for the next consumer that a root can have which the search has not read.

        The search has read the roots in `favored_ids`. Return None if the rule excludes all others.
        """

    def levels(self, root_ids: Iterable[int]) -> Iterator[tuple[RuleRank, Sequence[frozenset[int]]]]:
        """Yield ranks of sets of these roots for the next consumer, the best ones first.

        With each rank come disjoint sets of roots. No subset of them has a worse rank. Each set that the rule
        does not exclude is a subset of one of those that come with its rank. So the first rank with a
        candidate within one of its sets is the best of all candidates with these roots.
        """

    def record(self, root_ids: frozenset[int]) -> Collection[int]:
        """Record that a consumer was placed on these roots; return the roots whose ranks may now be better.

        The placer looks anew at the trees of the returned roots, so return few.
        """

    def begin_run(self, root_ids: frozenset[int]) -> Collection[int]:
        """Begin a run that excludes all domains but that of these roots; return the known roots in it.

        `best_unread` is then about the other roots in this domain.
        """

    def end_run(self) -> None:
        """Forget the placements of the run, and exclude its domain from now on.

        The run that placed the most consumers counts, the first of several. So a rule that reports on
        placements does so from the result and not from what it recorded.
        """
