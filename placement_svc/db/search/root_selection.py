"""Which roots a statement for anchors examines (`placement_svc.db.search.anchor_statement`)."""

from dataclasses import dataclass
from enum import Enum, auto


class Strategy(Enum):
    """How a statement finds the roots that it examines.

    They are the next ones (`root_scan`), all that PostgreSQL finds by the rarest criterion
    (`selective_lookup`), or those in the parameter `root_ids`.
    """

    SCAN = auto()
    LOOKUP = auto()
    GIVEN = auto()


@dataclass(frozen=True, kw_only=True)
class RootSelection:
    """Which roots a statement examines, and in which order.

    `randomized` is whether they are in the order of their uuids, from the parameter `start` on; `continues`,
    whether they are only those behind the position in the parameter `after`; and `merges_sets`, whether
    PostgreSQL reads ordered sets side by side. With `uses_amounts`, their trees have each amount free. With
    `checks_rules`, a lookup has the extra filters of `combination_conditions`.
    """

    strategy: Strategy
    randomized: bool = False
    continues: bool = False
    merges_sets: bool = True
    uses_amounts: bool = False
    checks_rules: bool = False
