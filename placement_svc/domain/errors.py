"""What can be wrong with a request, in Placement's own terms, and with what the service is given.

Each `PlacementError` carries its wording as its message and the API's error code as ``code``
(`docs/spec/http.md 6`). The four direct children of `PlacementError` say which kind of fault it is;
`placement_svc.http.errors` gives each kind its HTTP status.
"""


class PlacementError(Exception):
    """A request that cannot be granted; the message says why."""

    code = "placement.undefined_code"


class Invalid(PlacementError):
    """The request is wrong in itself."""


class NotFound(PlacementError):
    """The thing the path names does not exist."""


class Conflict(PlacementError):
    """The request is fine, but not in the present state of things."""


class Unavailable(PlacementError):
    """The database cannot be reached, or gave up; the same request may succeed later."""


class OutcomeUnknown(Unavailable):
    """The database was lost at the commit: what was to change has changed, or has not, or soon will."""


class DuplicateQueryKey(Invalid):
    """A query key that may stand only once stands twice."""

    code = "placement.query.duplicate_key"


class BadQueryValue(Invalid):
    """A query value contradicts itself or another one."""

    code = "placement.query.bad_value"


class MissingQueryValue(Invalid):
    """A query asks for nothing."""

    code = "placement.query.missing_value"


class UnknownProvider(Invalid):
    """A body names a resource provider that does not exist."""

    code = "placement.resource_provider.not_found"


class ConcurrentUpdate(Conflict):
    """The generation sent is not the current one: somebody else was first."""

    code = "placement.concurrent_update"


class OverCapacity(Conflict):
    """A claim asks for more than an inventory has left."""


class InventoryInUse(Conflict):
    """An inventory that allocations stand on cannot go away."""

    code = "placement.inventory.inuse"


class DuplicateName(Conflict):
    """Another resource provider has this name or uuid."""

    code = "placement.duplicate_name"


class ProviderInUse(Conflict):
    """A resource provider with allocations cannot go away."""

    code = "placement.resource_provider.inuse"


class ProviderHasChildren(Conflict):
    """A resource provider with children cannot go away."""

    code = "placement.resource_provider.cannot_delete_parent"


class SetupError(Exception):
    """Something that the settings name cannot be used; the message says what and why."""
