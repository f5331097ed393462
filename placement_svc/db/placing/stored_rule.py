"""Placement rules that depend on stored data (`docs/spec/extensions.md 5.2`)."""

from collections.abc import Collection, Mapping
from typing import Protocol

from sqlalchemy import Connection

from placement_svc.domain.placement_groups import PlacementGroup
from placement_svc.domain.placing.placements import Placements
from placement_svc.domain.placing.rule import PlacementRule


class StoredRule(PlacementRule, Protocol):
    """A placement rule that depends on stored data, such as the members of a placement group.

    One object serves all attempts of one call. In each attempt that claims, its methods are called in this
    order: `lock`, `start`, `load_roots` and the methods of `PlacementRule`, `save`. A dry run neither locks
    nor saves. An attempt may fail after any of them; the next one begins anew.
    """

    uuid: str
    """The uuid of the placement group that is the rule."""

    @property
    def group(self) -> PlacementGroup:
        """The placement group, since `start`."""

    def lock(self, connection: Connection) -> None:
        """Lock the rule against all other claims, until the end of this transaction that will claim.

        It is the first lock of the transaction: consumers, providers and inventories follow. The snapshot of
        the search is taken afterwards, by another connection, so it sees what others have committed.
        """

    def start(self, connection: Connection, consumer_uuids: Collection[str]) -> None:
        """Read the rule and the present roots of other consumers than these, in the snapshot of the search.

        Forget what former attempts have recorded.
        """

    def load_roots(self, connection: Connection, root_ids: Collection[int]) -> None:
        """Read what `rank` needs of these roots, in the snapshot of the search.

        It is called before `rank`, for each root that can be a root of one of the consumers.
        """

    def save(self, connection: Connection, placements: Placements, consumer_ids: Mapping[str, int]) -> None:
        """Store the placed consumers, in the transaction that claims; `consumer_ids` are by uuid."""
