"""The endpoints: one blueprint for each kind of thing."""

from placement_svc.api import resource_providers, root

BLUEPRINTS = (root.bp, resource_providers.bp)
"""Every blueprint, in the order of `spec/http.md 4`."""
