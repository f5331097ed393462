"""The header in which requests and responses name the versions of Placement and of the extensions."""

VERSION_HEADER = "OpenStack-API-Version"
"""The header with which a request selects a microversion, and a version of the extensions."""

PLACEMENT = "placement"
EXTENSIONS = "placement-svc"
"""The names of the two services in `VERSION_HEADER`: Placement, and the extensions of this service."""

EXTENSION_VERSIONS = ("1.0",)
"""The versions of the extensions of this service, oldest first (`docs/spec/extensions.md 1`)."""

EXTENSIONS_HEADER = f"{VERSION_HEADER}: {PLACEMENT} 1.39, {EXTENSIONS} {EXTENSION_VERSIONS[-1]}"
"""The header of a request that uses extensions, with its name (`docs/spec/extensions.md 1`)."""
