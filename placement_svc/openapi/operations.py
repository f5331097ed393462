"""Requests and responses of every endpoint at the newest microversion, for the OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import microversion_parse

from placement_svc.http.microversion import NEWEST
from placement_svc.schemas import list_responses, responses
from placement_svc.schemas.aggregates import ChangedAggregates, PatchedAggregates
from placement_svc.schemas.allocations import ClaimV1_13, claims_field
from placement_svc.schemas.base import Object, Schema
from placement_svc.schemas.candidates_query import ExtendedRequestQuery, GroupQuery
from placement_svc.schemas.capacity import CapacityQuery
from placement_svc.schemas.claims import ClaimsRequest, ClaimsSchema
from placement_svc.schemas.consumers import AllocationsQuery, ConsumersQuery, ProjectsQuery
from placement_svc.schemas.empty_answers import EmptyAnswersQuery
from placement_svc.schemas.explanation import ExplanationQuery
from placement_svc.schemas.explanation_response import ExplanationSchema
from placement_svc.schemas.fits import FitsQuery, FitsSchema
from placement_svc.schemas.inventories import (
    ChangedInventories,
    ChangedInventory,
    NewInventory,
    PatchedInventories,
)
from placement_svc.schemas.placement_groups import (
    PlacementGroupBody,
    PlacementGroupSchema,
    PlacementGroupsQuery,
    PlacementGroupsSchema,
)
from placement_svc.schemas.provider_lists import ExtendedProviderQuery
from placement_svc.schemas.reshaper import reshape_schema
from placement_svc.schemas.resource_classes import NamedResourceClass
from placement_svc.schemas.resource_providers import ChangedProvider, NewProvider
from placement_svc.schemas.scalars import DASHED_UUID, String, Value
from placement_svc.schemas.traits import ChangedTraits, PatchedTraits, TraitQuery
from placement_svc.schemas.usages import UsagesQuery

_NEWEST = microversion_parse.parse_version_string(NEWEST)


@dataclass(frozen=True)
class Operation:
    """The request and the responses of an endpoint.

    - `responses`: the body for each status of success, None for an empty body.
    - `body`: the JSON body of the request.
    - `query`: the query parameters. `group_query`: those that take the suffix of a request group.
    - `conflict`: when the response has the status 409.
    - `path`: the path parameters that differ from the defaults in `document.PATH_PARAMETERS`.
    - `has_location`: whether a response has a `Location` header.
    - `is_older_extension`: whether the endpoint is an extension from before the versions of the extensions,
      which `EndpointInfo.is_extension` does not mark.
    - `query_has_extensions`: whether some parameters of an endpoint of Placement are extensions.
    - `query_names_resource`: whether a query parameter names something that must exist.
    """

    responses: Mapping[int, Value | None]
    body: Value | None = None
    query: type[Schema] | None = None
    group_query: type[Schema] | None = None
    conflict: str | None = None
    path: Mapping[str, String] = field(default_factory=dict)
    has_location: bool = False
    is_older_extension: bool = False
    query_has_extensions: bool = False
    query_names_resource: bool = False


def _object(schema: type[Schema]) -> Object:
    return Object(schema.at(_NEWEST))


def _shows(schema: type[Schema]) -> Mapping[int, Value | None]:
    return {200: _object(schema)}


_GROUP_UUID = String(uuid=DASHED_UUID, metadata={"description": "The uuid of a placement group."})

_EMPTY: Mapping[int, Value | None] = {204: None}
_ENSURED: Mapping[int, Value | None] = {201: None, 204: None}

_GENERATION_CHANGED = "The generation in the request is not the current generation of the provider."
_NOT_ALLOCATABLE = (
    "An inventory does not allow the amount (capacity, `min_unit`, `max_unit` or `step_size`), or a"
    " generation is not the current one."
)

OPERATIONS: Mapping[str, Operation] = {
    "root.show_versions": Operation(_shows(responses.VersionsSchema)),
    "resource_providers.list_providers": Operation(
        _shows(responses.ProvidersSchema), query=ExtendedProviderQuery, query_has_extensions=True
    ),
    "resource_providers.create_provider": Operation(
        _shows(responses.ProviderSchema),
        body=_object(NewProvider),
        conflict="The name or the uuid is taken.",
        has_location=True,
    ),
    "resource_providers.show_provider": Operation(_shows(responses.ProviderSchema)),
    "resource_providers.change_provider": Operation(
        _shows(responses.ProviderSchema), body=_object(ChangedProvider), conflict="The name is taken."
    ),
    "resource_providers.delete_provider": Operation(
        _EMPTY, conflict="The provider has children or allocations."
    ),
    "inventories.list_inventories": Operation(_shows(responses.InventoriesSchema)),
    "inventories.create_inventory": Operation(
        {201: _object(responses.InventorySchema)},
        body=_object(NewInventory),
        conflict="The provider has an inventory of this class already.",
        has_location=True,
    ),
    "inventories.replace_inventories": Operation(
        _shows(responses.InventoriesSchema),
        body=_object(ChangedInventories),
        conflict=f"{_GENERATION_CHANGED} Or an inventory that the request omits has allocations.",
    ),
    "inventories.change_inventories": Operation(
        _shows(responses.InventoriesSchema),
        body=PatchedInventories(),
        conflict=f"{_GENERATION_CHANGED} Or an inventory to remove has allocations.",
    ),
    "inventories.delete_inventories": Operation(_EMPTY, conflict="An inventory has allocations."),
    "inventories.show_inventory": Operation(_shows(responses.InventorySchema)),
    "inventories.replace_inventory": Operation(
        _shows(responses.InventorySchema), body=_object(ChangedInventory), conflict=_GENERATION_CHANGED
    ),
    "inventories.delete_inventory": Operation(_EMPTY, conflict="The inventory has allocations."),
    "usages.show_provider_usages": Operation(_shows(responses.ProviderUsagesSchema)),
    "usages.show_usages": Operation(_shows(responses.UsagesSchema), query=UsagesQuery),
    "provider_aggregates.list_provider_aggregates": Operation(_shows(responses.ProviderAggregatesSchema)),
    "provider_aggregates.replace_provider_aggregates": Operation(
        _shows(responses.ProviderAggregatesSchema),
        body=_object(ChangedAggregates),
        conflict=_GENERATION_CHANGED,
    ),
    "provider_aggregates.change_provider_aggregates": Operation(
        _shows(responses.ProviderAggregatesSchema),
        body=_object(PatchedAggregates),
        conflict=_GENERATION_CHANGED,
    ),
    "provider_traits.list_provider_traits": Operation(_shows(responses.ProviderTraitsSchema)),
    "provider_traits.replace_provider_traits": Operation(
        _shows(responses.ProviderTraitsSchema), body=_object(ChangedTraits), conflict=_GENERATION_CHANGED
    ),
    "provider_traits.change_provider_traits": Operation(
        _shows(responses.ProviderTraitsSchema), body=_object(PatchedTraits), conflict=_GENERATION_CHANGED
    ),
    "provider_traits.delete_provider_traits": Operation(
        _EMPTY, conflict="A concurrent request changed the provider."
    ),
    "traits.list_traits": Operation(_shows(responses.TraitsSchema), query=TraitQuery),
    "traits.show_trait": Operation(_EMPTY),
    "traits.ensure_trait": Operation(_ENSURED, has_location=True),
    "traits.delete_trait": Operation(_EMPTY, conflict="A provider has the trait."),
    "resource_classes.list_resource_classes": Operation(_shows(responses.ResourceClassesSchema)),
    "resource_classes.create_resource_class": Operation(
        {201: None}, body=_object(NamedResourceClass), conflict="The name is taken.", has_location=True
    ),
    "resource_classes.show_resource_class": Operation(_shows(responses.ResourceClassSchema)),
    "resource_classes.put_resource_class": Operation(_ENSURED, has_location=True),
    "resource_classes.delete_resource_class": Operation(
        _EMPTY, conflict="A provider has an inventory of the class."
    ),
    "allocation_candidates.list_candidates": Operation(
        _shows(responses.AllocationCandidatesSchema),
        query=ExtendedRequestQuery,
        group_query=GroupQuery,
        query_has_extensions=True,
    ),
    "explanations.explain_candidates": Operation(
        _shows(ExplanationSchema),
        query=ExplanationQuery,
        group_query=GroupQuery,
        query_names_resource=True,
    ),
    "fits.show_fits": Operation(_shows(FitsSchema), query=FitsQuery, group_query=GroupQuery),
    "empty_answers.list_empty_answers": Operation(
        _shows(responses.EmptyAnswersSchema), query=EmptyAnswersQuery
    ),
    "allocations.list_allocations": Operation(
        _shows(list_responses.AllocationListSchema), query=AllocationsQuery
    ),
    "allocations.replace_allocations": Operation(
        _EMPTY, body=claims_field(_NEWEST, min_members=1), conflict=_NOT_ALLOCATABLE
    ),
    "allocations.show_allocations": Operation(
        _shows(responses.ConsumerAllocationsSchema), path={"consumer_uuid": String()}
    ),
    "allocations.replace_consumer_allocations": Operation(
        _EMPTY, body=_object(ClaimV1_13), conflict=_NOT_ALLOCATABLE
    ),
    "allocations.delete_allocations": Operation(_EMPTY),
    "allocations.list_provider_allocations": Operation(_shows(responses.ProviderAllocationsSchema)),
    "reshaper.reshape": Operation(
        _EMPTY,
        body=Object(reshape_schema(_NEWEST)),
        conflict=f"{_NOT_ALLOCATABLE} Or an inventory that the request omits has allocations.",
    ),
    "claims.place_consumers": Operation(
        _shows(ClaimsSchema),
        body=_object(ClaimsRequest),
        conflict="There are not enough candidates, or a consumer generation is not the current one.",
    ),
    "aggregates.list_aggregates": Operation(_shows(responses.AggregateListSchema), is_older_extension=True),
    "aggregates.show_aggregate": Operation(
        _shows(responses.AggregateMembersSchema), path={"uuid": String()}, is_older_extension=True
    ),
    "capacity.show_capacity": Operation(_shows(list_responses.CapacitySchema), query=CapacityQuery),
    "consumers.list_consumers": Operation(_shows(list_responses.ConsumersSchema), query=ConsumersQuery),
    "consumers.show_consumer": Operation(
        _shows(list_responses.ConsumerSchema), path={"consumer_uuid": String()}
    ),
    "consumers.list_projects": Operation(_shows(list_responses.ProjectsSchema), query=ProjectsQuery),
    "placement_groups.list_placement_groups": Operation(
        _shows(PlacementGroupsSchema), query=PlacementGroupsQuery
    ),
    "placement_groups.show_placement_group": Operation(
        _shows(PlacementGroupSchema), path={"uuid": _GROUP_UUID}
    ),
    "placement_groups.replace_placement_group": Operation(
        {200: _object(PlacementGroupSchema), 201: _object(PlacementGroupSchema)},
        body=_object(PlacementGroupBody),
        path={"uuid": _GROUP_UUID},
    ),
    "placement_groups.delete_placement_group": Operation(
        _EMPTY, conflict="The group has members.", path={"uuid": _GROUP_UUID}
    ),
}
"""The operation of every endpoint, by blueprint and view; `registry` checks that none is missing."""
