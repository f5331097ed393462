"""Provider trees, found by the name or uuid of one of their providers, and what consumers have of them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from placement_svc.client.service_client import ServiceClient
from placement_svc.commands.listing import Listing
from placement_svc.commands.query import get
from placement_svc.commands.report import Report, sentence, usual_uuid

Provider = Mapping[str, Any]


def find_tree(service: ServiceClient, name_or_uuid: str, **query: str) -> list[Provider]:
    """Return the providers of a tree, none if there is no such provider; a uuid is tried before a name."""
    if uuid := usual_uuid(name_or_uuid):
        found = _list(service, in_tree=uuid, **query)
        if found:
            return found
    # An empty name in a query matches every provider.
    if not name_or_uuid:
        return []
    return [
        provider
        for named in _named(service, name_or_uuid)
        for provider in _list(service, in_tree=named["uuid"], **query)
    ]


def _named(service: ServiceClient, name: str) -> list[Provider]:
    """Return the provider with this name, if there is one."""
    # A value that begins with "contains:" matches a part of the name.
    value = f"contains:{name}" if name.startswith("contains:") else name
    return [provider for provider in _list(service, name=value) if provider["name"] == name]


def _list(service: ServiceClient, **query: str) -> list[Provider]:
    providers: list[Provider] = get(service, "/resource_providers", **query)["resource_providers"]
    return providers


def root_of(providers: list[Provider]) -> Provider:
    """Return the root of a tree."""
    # A tree that is moved while it is read may lack its root.
    return next((each for each in providers if each["parent_provider_uuid"] is None), providers[0])


def held_from(providers: list[Provider], consumer: Mapping[str, Any]) -> Counter[str]:
    """Return the amounts that a consumer has from these providers, by resource class."""
    held: Counter[str] = Counter()
    for provider in providers:
        allocation = consumer["allocations"].get(provider["uuid"], {"resources": {}})
        held.update(allocation["resources"])
    return held


def not_found(name_or_uuid: str, listing: Listing, document: Any) -> Report:
    """Return the report on a provider that does not exist."""
    message = (
        f"No resource provider has the name or uuid {name_or_uuid}. "
        "`placement-svc find` also searches for parts of names, and for consumers."
    )
    return Report(document, listing, [sentence(message)], is_success=False)
