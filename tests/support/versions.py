"""The versions that requests name which use extensions (`docs/spec/extensions.md 1`)."""

from placement_svc.domain.version_header import EXTENSION_VERSIONS, EXTENSIONS, PLACEMENT, VERSION_HEADER
from placement_svc.http.microversion import NEWEST

EXTENDED = f"{NEWEST}, {EXTENSIONS} {EXTENSION_VERSIONS[-1]}"
"""The newest versions of Placement and of the extensions, as they follow `PLACEMENT` in the header."""

EXTENDED_HEADER = {VERSION_HEADER: f"{PLACEMENT} {EXTENDED}"}
"""The version header with `EXTENDED`."""
