"""Schemas of resource provider bodies and of the provider query (`docs/spec/resources.md 3`)."""

from collections.abc import Mapping

from placement_svc.domain.groups import RequestGroup
from placement_svc.domain.limits import MAX_PROVIDER_NAME_LENGTH
from placement_svc.domain.providers import ProviderFilter
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.base import Schema
from placement_svc.schemas.groups import (
    MEMBER_OF,
    REQUIRED,
    RESOURCES,
    parse_member_of,
    parse_required,
    parse_resources,
)
from placement_svc.schemas.query import Pairs, values_of
from placement_svc.schemas.scalars import ANY_UUID, DASHED_UUID, String, Version
from placement_svc.schemas.staleness import STALE_KEYS


class NewProvider(Schema):
    """The body of POST /resource_providers."""

    name = String(max_length=MAX_PROVIDER_NAME_LENGTH, required=True)
    uuid = String(uuid=ANY_UUID)
    parent_provider_uuid = String(uuid=ANY_UUID, allow_none=True, since="1.14")


class ChangedProvider(Schema):
    """The body of PUT /resource_providers/{uuid}; without a parent, the parent does not change."""

    name = String(max_length=MAX_PROVIDER_NAME_LENGTH, required=True)
    parent_provider_uuid = String(uuid=ANY_UUID, allow_none=True, since="1.14")


class ProviderQuery(Schema):
    """The query parameters of GET /resource_providers."""

    extension_keys = STALE_KEYS.union(["include", "limit", "marker", "sort_by"])

    name = String(metadata={"description": "The name of a provider."})
    uuid = String(uuid=DASHED_UUID, metadata={"description": "The uuid of a provider."})
    member_of = String(since="1.3", metadata=MEMBER_OF)
    resources = String(since="1.4", metadata=RESOURCES)
    in_tree = String(
        uuid=DASHED_UUID,
        since="1.14",
        metadata={"description": "A provider; every provider of its tree matches."},
    )
    required = String(since="1.18", metadata=REQUIRED)


def parse_filter(pairs: Pairs, version: Version) -> ProviderFilter:
    """Return the filter that the query parameters `pairs` describe; raise `Invalid`."""
    query = ProviderQuery.at(version).check(dict(pairs), QUERY_ERROR)
    return ProviderFilter(
        name=query.get("name") or None,
        uuids=frozenset([query["uuid"]]) if "uuid" in query else None,
        group=parse_group(query, pairs, version),
    )


def parse_group(query: Mapping[str, str], pairs: Pairs, version: Version) -> RequestGroup:
    """Return the conditions of a loaded query that a provider must satisfy alone; raise `Invalid`."""
    member_of = parse_member_of("member_of", values_of(pairs, "member_of"), version)
    required = parse_required(values_of(pairs, "required"), version)
    resources = parse_resources(query["resources"]) if "resources" in query else {}
    return RequestGroup(
        resources=resources, required=required, member_of=member_of, in_tree=query.get("in_tree")
    )
