"""Errors of requests, in Placement's terms, and of the service's settings.

The message of a `PlacementError` is the text that the client reads; ``code`` is the API's error code
(`docs/spec/http.md 6`). The direct subclasses of `PlacementError` are the kinds of error:
`placement_svc.http.errors` maps each kind to an HTTP status. `ClientDisconnected` has none, as there is no
response.
"""

from collections.abc import Mapping
from typing import Any

from placement_svc.domain.placement_groups import PlacementGroup


class PlacementError(Exception):
    """The service cannot grant a request; the message gives the reason."""

    code = "placement.undefined_code"
    extra: Mapping[str, Any] = {}
    """Further keys of the error in a JSON response."""


class Invalid(PlacementError):
    """The request is malformed, names something that does not exist, or exceeds a limit.

    `key` is the query key whose value is at fault; it is empty if the error does not know it.
    """

    def __init__(self, *args: object, key: str = "") -> None:
        super().__init__(*args)
        self.key = key


class NotFound(PlacementError):
    """The resource that the path names does not exist."""


class Conflict(PlacementError):
    """The request is valid but conflicts with the stored data."""


class Unavailable(PlacementError):
    """The service cannot process the request now; the same request may succeed later."""


class NoLongSlot(Unavailable):
    """The request has become long while too many others are: it can start again with a long slot."""


class TooManyLongResponses(Unavailable):
    """The response is long, and too many such are being sent: it can be generated again later."""


class ClientDisconnected(PlacementError):
    """The client closed its connection before it got the response, so the request is not completed."""


class OutcomeUnknown(Unavailable):
    """The connection was lost during the commit: the change may have been committed, or not."""


class UnknownName(Invalid):
    """The request names a trait or a resource class that does not exist."""


class DuplicateQueryKey(Invalid):
    """A query key that may occur only once is repeated."""

    code = "placement.query.duplicate_key"


class BadQueryValue(Invalid):
    """A query value contradicts itself or another value."""

    code = "placement.query.bad_value"


class MissingQueryValue(Invalid):
    """A query lacks a required value."""

    code = "placement.query.missing_value"


class UnknownProvider(Invalid):
    """A request body names a resource provider that does not exist."""

    code = "placement.resource_provider.not_found"


class ConcurrentUpdate(Conflict):
    """The generation in the request is outdated: another request changed the data first."""

    code = "placement.concurrent_update"


class OverCapacity(Conflict):
    """A claim exceeds the remaining capacity of an inventory."""


class InventoryInUse(Conflict):
    """An inventory with allocations cannot be deleted."""

    code = "placement.inventory.inuse"


class DuplicateName(Conflict):
    """Another resource provider has the same name or uuid."""

    code = "placement.duplicate_name"


class ProviderInUse(Conflict):
    """A resource provider with allocations cannot be deleted."""

    code = "placement.resource_provider.inuse"


class ProviderHasChildren(Conflict):
    """A resource provider with children cannot be deleted."""

    code = "placement.resource_provider.cannot_delete_parent"


class UnknownPlacementGroup(Invalid):
    """A claim names a placement group that does not exist."""

    code = "placement_svc.placement_group.not_found"


class PlacementGroupInUse(Conflict):
    """A placement group with members cannot be deleted."""

    code = "placement_svc.placement_group.inuse"


class NoCandidates(Conflict):
    """Too few of the consumers of one call can be placed."""

    code = "placement_svc.no_candidates"

    def __init__(
        self,
        *,
        placeable: int,
        wanted: int,
        explanation: str | None,
        group: PlacementGroup | None = None,
    ) -> None:
        """Take how many consumers can be placed, and how many have to be.

        `group` is the placement group without which enough of them could be placed.
        """
        text = (
            f"There are candidates for {placeable} of the consumers, but {wanted} have to be placed."
            if placeable
            else "There are no candidates for the first consumer."
        )
        self.extra: dict[str, Any] = {"placeable": placeable, "explanation": explanation}
        self.group = group
        if group is not None:
            text += f" Without the {group.policy} of placement group {group.uuid}, there are enough."
            self.extra["placement_group"] = group.uuid
        super().__init__(text)


class SetupError(Exception):
    """The service cannot use a value of its settings; the message names the value and the reason."""
