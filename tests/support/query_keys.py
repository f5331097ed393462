"""The query keys of GET requests, from the schemas of the service."""

import re
from typing import Any

from placement_svc.schemas.candidates_query import GROUP_KEYS, ExtendedRequestQuery, GroupQuery
from placement_svc.schemas.capacity import CapacityQuery
from placement_svc.schemas.consumers import AllocationsQuery, ConsumersQuery, ProjectsQuery
from placement_svc.schemas.empty_answers import EmptyAnswersQuery
from placement_svc.schemas.explanation import ExplanationQuery
from placement_svc.schemas.fits import FitsQuery
from placement_svc.schemas.placement_groups import PlacementGroupsQuery
from placement_svc.schemas.provider_lists import ExtendedProviderQuery
from placement_svc.schemas.resource_providers import ProviderQuery
from placement_svc.schemas.scalars import SUFFIX
from placement_svc.schemas.staleness import StaleQuery
from placement_svc.schemas.traits import TraitQuery
from placement_svc.schemas.usages import UsagesQuery

CANDIDATES = "/allocation_candidates"
EXPLANATION = "/allocation_candidates/explanation"
FITS = "/allocation_candidates/capacity"
SCHEMAS: dict[str, tuple[Any, ...]] = {
    "/resource_providers": (ProviderQuery, ExtendedProviderQuery, StaleQuery),
    CANDIDATES: (GroupQuery, ExtendedRequestQuery, StaleQuery),
    "/allocation_candidates/empty": (EmptyAnswersQuery, StaleQuery),
    EXPLANATION: (GroupQuery, ExplanationQuery, StaleQuery),
    FITS: (GroupQuery, FitsQuery, StaleQuery),
    "/traits": (TraitQuery, StaleQuery),
    "/allocations": (AllocationsQuery, StaleQuery),
    "/capacity": (CapacityQuery, StaleQuery),
    "/consumers": (ConsumersQuery, StaleQuery),
    "/placement_groups": (PlacementGroupsQuery,),
    "/projects": (ProjectsQuery, StaleQuery),
    "/usages": (UsagesQuery, StaleQuery),
}
"""The schemas of the query of each GET request that has one."""


def keys(path: str) -> set[str]:
    """Return the query keys of a path that its schemas declare."""
    return {key for schema in SCHEMAS[path] for key in schema().fields}


def without_suffix(key: str) -> str:
    """Return the key of a candidates request without the suffix of its group."""
    suffixed = re.fullmatch(rf"({'|'.join(GROUP_KEYS)}){SUFFIX}", key)
    return suffixed[1] if suffixed else key
