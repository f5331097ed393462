"""How many roots each batch of an ordered search has, and when it stops examining roots in order."""

import math
from dataclasses import dataclass, field

FIRST_BATCH = (1.02, 4)
"""The first batch has this multiple of the trees that are wanted, plus this number of roots.

Usually all roots with a good key are anchors, and a further batch takes as long as ten roots.
"""

FIRST_FILTERED_BATCH = (1.1, 40)
"""The same if filters exclude roots, or trees without preferred traits are left for later."""

FIRST_BATCH_OF_SETS = (1.1, 90)
"""The same if several sets of roots are intersected, of which mostly more than five in six are excluded."""

MAX_ORDERED_BATCHES = 12
"""The batches of roots in order after which a search finds all other anchors at once."""

MAX_USELESS_RATIO = 1 / 8
"""The part of all roots that may be examined in order and yield no anchor with a bound before the horizon.

Then all other anchors are found at once: for each root of the cloud, that costs an eighth of the time.
For the same reason, all are found at once if consumers are ignored on more roots than this.
"""

MIN_USELESS_LIMIT = 1000
"""The least number of roots to which `MAX_USELESS_RATIO` limits them, for small clouds."""

BATCH_GROWTH = 4
"""The most roots of a batch after the first, as a multiple of the batch before.

A batch can also have as many roots as all batches before it, if that is more.
"""

MIN_ANCHOR_RATIO = 1 / 20
"""The part of the roots of a batch that must be anchors; otherwise only roots in sets are worth examining."""

MIN_SAMPLE = 30
"""The least number of roots of such a batch: fewer roots say little about the others."""


def max_useless(root_count: int) -> int:
    """Return how many roots of a cloud may be examined in vain before all anchors are found at once."""
    return max(MIN_USELESS_LIMIT, int(MAX_USELESS_RATIO * root_count))


def max_roots_per_tree(root_count: int, limit: int) -> float:
    """Return how many roots the first batch may have for each tree, so that few are examined in vain."""
    return 1 + max_useless(root_count) / max(1, limit)


@dataclass(kw_only=True)
class BatchSizes:
    """Decides the sizes of batches of roots in order, from what the batches so far have yielded.

    `root_count` is the number of roots of the cloud. `has_filters` is whether filters exclude roots, and
    `intersects_sets` whether the batches intersect several sets of roots for them. `first_roots_per_tree` is
    how many roots the first batch has for each tree that is wanted.
    """

    root_count: int
    has_filters: bool
    intersects_sets: bool
    first_roots_per_tree: float
    batches: int = field(default=0, init=False)
    """The number of batches so far."""
    examined: int = field(default=0, init=False)
    """The number of roots in them."""
    last_batch: int = field(default=0, init=False)
    """The number of roots in the last one."""
    before_horizon: int = field(default=0, init=False)
    """The number of anchors in them whose bounds are before the horizon."""

    def add_batch(self, root_count: int) -> None:
        """Count a batch with so many roots."""
        self.batches += 1
        self.last_batch = root_count
        self.examined += root_count

    def next_size(self, wanted: int) -> int:
        """Return the number of roots of the next batch, if so many trees are wanted.

        After the first one, it has as many as those before suggest: not each root is an anchor with its key.
        """
        factor, more = FIRST_FILTERED_BATCH if self.has_filters else FIRST_BATCH
        if self.intersects_sets:
            factor, more = FIRST_BATCH_OF_SETS
        expected = int(factor * wanted * self.roots_per_tree) + more
        if self.batches == 0:
            return expected
        # A batch of roots of one key can have fewer roots than requested, even none.
        most = max(BATCH_GROWTH * self.last_batch, self.examined) + more
        if self.batches == 1:
            return min(expected, most)
        return min(max(expected, self.last_batch), most, wanted + self._useless_left)

    def enough(self, wanted: int) -> int:
        """Return how many roots with the best keys probably suffice for so many trees."""
        return math.ceil(wanted * self.roots_per_tree)

    @property
    def roots_per_tree(self) -> float:
        """How many roots must be examined for each tree that is wanted, by what is known so far."""
        if self.batches == 0:
            return self.first_roots_per_tree
        return self.examined / max(1, self.before_horizon)

    @property
    def are_exhausted(self) -> bool:
        """Whether no further batch in order is worthwhile."""
        return self.batches == MAX_ORDERED_BATCHES or not self._useless_left

    @property
    def _useless_left(self) -> int:
        """How many further roots may yield no anchor with a bound before the horizon."""
        return max(0, max_useless(self.root_count) - (self.examined - self.before_horizon))

    def excludes_most(self, anchor_count: int) -> bool:
        """Return whether most roots are no anchors, after a batch with so many anchors."""
        return self.last_batch >= MIN_SAMPLE and anchor_count < MIN_ANCHOR_RATIO * self.last_batch
