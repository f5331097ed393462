"""What the endpoints read and answer at the newest microversion, by the names of their views."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import microversion_parse

from placement_svc.http.microversion import NEWEST
from placement_svc.schemas import responses
from placement_svc.schemas.aggregates import ChangedAggregates
from placement_svc.schemas.allocation_candidates import GroupQuery, WholeRequestQuery
from placement_svc.schemas.allocations import ClaimV1_13, claims_field
from placement_svc.schemas.base import Object, Schema, String, Value
from placement_svc.schemas.inventories import ChangedInventories, ChangedInventory, NewInventory
from placement_svc.schemas.reshaper import reshape_schema
from placement_svc.schemas.resource_classes import NamedResourceClass
from placement_svc.schemas.resource_providers import ChangedProvider, NewProvider, ProviderQuery
from placement_svc.schemas.traits import ChangedTraits, TraitQuery
from placement_svc.schemas.usages import UsagesQuery

_NEWEST = microversion_parse.parse_version_string(NEWEST)


@dataclass(frozen=True)
class Operation:
    """What an endpoint reads and answers.

    `answers` has the body of the answer (None: there is none) for each status of success, `conflict`
    tells when the answer is 409. `group_query` are keys to which the suffix of a request group may be
    added. `path` describes what in the path is not as elsewhere. With `locates` the answer says where
    to find what was made. What is `ours` is not in Placement.
    """

    answers: Mapping[int, Value | None]
    body: Value | None = None
    query: type[Schema] | None = None
    group_query: type[Schema] | None = None
    conflict: str | None = None
    path: Mapping[str, String] = field(default_factory=dict)
    locates: bool = False
    ours: bool = False


def _object(document: type[Schema]) -> Object:
    return Object(document.at(_NEWEST))


def _shows(document: type[Schema]) -> Mapping[int, Value | None]:
    return {200: _object(document)}


_EMPTY: Mapping[int, Value | None] = {204: None}
_ENSURED: Mapping[int, Value | None] = {201: None, 204: None}

_CHANGED = "The generation sent is not that of the provider: it has changed."
_EXCEEDED = (
    "There is not enough left, a generation has changed, or an inventory is not given in such portions."
)

OPERATIONS: Mapping[str, Operation] = {
    "root.show_versions": Operation(_shows(responses.VersionsSchema)),
    "resource_providers.list_providers": Operation(_shows(responses.ProvidersSchema), query=ProviderQuery),
    "resource_providers.create_provider": Operation(
        _shows(responses.ProviderSchema),
        body=_object(NewProvider),
        conflict="The name or the uuid is taken.",
        locates=True,
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
        locates=True,
    ),
    "inventories.replace_inventories": Operation(
        _shows(responses.InventoriesSchema),
        body=_object(ChangedInventories),
        conflict=f"{_CHANGED} Or an inventory that is left out has allocations.",
    ),
    "inventories.delete_inventories": Operation(_EMPTY, conflict="An inventory has allocations."),
    "inventories.show_inventory": Operation(_shows(responses.InventorySchema)),
    "inventories.replace_inventory": Operation(
        _shows(responses.InventorySchema), body=_object(ChangedInventory), conflict=_CHANGED
    ),
    "inventories.delete_inventory": Operation(_EMPTY, conflict="The inventory has allocations."),
    "usages.show_provider_usages": Operation(_shows(responses.ProviderUsagesSchema)),
    "usages.show_usages": Operation(_shows(responses.UsagesSchema), query=UsagesQuery),
    "provider_aggregates.list_provider_aggregates": Operation(_shows(responses.ProviderAggregatesSchema)),
    "provider_aggregates.replace_provider_aggregates": Operation(
        _shows(responses.ProviderAggregatesSchema), body=_object(ChangedAggregates), conflict=_CHANGED
    ),
    "provider_traits.list_provider_traits": Operation(_shows(responses.ProviderTraitsSchema)),
    "provider_traits.replace_provider_traits": Operation(
        _shows(responses.ProviderTraitsSchema), body=_object(ChangedTraits), conflict=_CHANGED
    ),
    "provider_traits.delete_provider_traits": Operation(_EMPTY, conflict="Somebody else was faster."),
    "traits.list_traits": Operation(_shows(responses.TraitsSchema), query=TraitQuery),
    "traits.show_trait": Operation(_EMPTY),
    "traits.ensure_trait": Operation(_ENSURED, locates=True),
    "traits.delete_trait": Operation(_EMPTY, conflict="A provider has the trait."),
    "resource_classes.list_resource_classes": Operation(_shows(responses.ResourceClassesSchema)),
    "resource_classes.create_resource_class": Operation(
        {201: None}, body=_object(NamedResourceClass), conflict="The name is taken.", locates=True
    ),
    "resource_classes.show_resource_class": Operation(_shows(responses.ResourceClassSchema)),
    "resource_classes.put_resource_class": Operation(_ENSURED, locates=True),
    "resource_classes.delete_resource_class": Operation(
        _EMPTY, conflict="A provider has an inventory of the class."
    ),
    "allocation_candidates.list_candidates": Operation(
        _shows(responses.AllocationCandidatesSchema), query=WholeRequestQuery, group_query=GroupQuery
    ),
    "allocations.replace_allocations": Operation(
        _EMPTY, body=claims_field(_NEWEST, min_members=1), conflict=_EXCEEDED
    ),
    "allocations.show_allocations": Operation(
        _shows(responses.ConsumerAllocationsSchema), path={"consumer_uuid": String()}
    ),
    "allocations.replace_consumer_allocations": Operation(
        _EMPTY, body=_object(ClaimV1_13), conflict=_EXCEEDED
    ),
    "allocations.delete_allocations": Operation(_EMPTY),
    "allocations.list_provider_allocations": Operation(_shows(responses.ProviderAllocationsSchema)),
    "reshaper.reshape": Operation(
        _EMPTY,
        body=Object(reshape_schema(_NEWEST)),
        conflict=f"{_EXCEEDED} Or an inventory that is left out has allocations.",
    ),
    "aggregates.list_aggregates": Operation(_shows(responses.AggregateListSchema), ours=True),
    "aggregates.show_aggregate": Operation(
        _shows(responses.AggregateMembersSchema), path={"uuid": String()}, ours=True
    ),
}
