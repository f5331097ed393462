"""The endpoints: one blueprint for each kind of resource."""

from placement_svc.api import (
    aggregates,
    allocation_candidates,
    allocations,
    capacity,
    consumers,
    empty_answers,
    explanations,
    inventories,
    provider_aggregates,
    provider_traits,
    reshaper,
    resource_classes,
    resource_providers,
    root,
    traits,
    usages,
)

BLUEPRINTS = (
    root.bp,
    resource_classes.bp,
    resource_providers.bp,
    inventories.bp,
    usages.bp,
    provider_aggregates.bp,
    allocations.bp,
    provider_traits.bp,
    traits.bp,
    allocation_candidates.bp,
    reshaper.bp,
    aggregates.bp,
    consumers.bp,
    capacity.bp,
    empty_answers.bp,
    explanations.bp,
)
"""Every blueprint, in the order of `docs/spec/http.md 4`, followed by the extensions of this service."""
