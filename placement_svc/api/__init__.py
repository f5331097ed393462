"""The endpoints: one blueprint for each kind of thing."""

from placement_svc.api import allocation_candidates, resource_providers, root

BLUEPRINTS = (root.bp, resource_providers.bp, allocation_candidates.bp)
"""Every blueprint, in the order of `spec/http.md 4`."""
