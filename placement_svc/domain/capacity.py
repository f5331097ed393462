"""Sums over inventories and allocations (`docs/spec/extensions.md 6.4`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

Amounts = Mapping[str, Mapping[str, int]]
"""Amounts, such as `total` and `used`, by resource class and name."""


class Grouping(StrEnum):
    """The values of `group_by`."""

    ROOT = "root"
    AGGREGATE = "aggregate"
    TRAIT = "trait"
    CONSUMER_TYPE = "consumer_type"
    PROJECT_ID = "project_id"


BY_CONSUMER = (Grouping.CONSUMER_TYPE, Grouping.PROJECT_ID)
"""The groupings of allocations, which have used amounts only; the others are groupings of inventories."""


@dataclass(frozen=True)
class CapacityGroup:
    """The amounts of one group; `key` is None for what belongs to none, `name` the name of a root."""

    key: str | None
    name: str
    amounts: Amounts
