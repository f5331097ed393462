"""Extended queries for resource providers (`docs/spec/extensions.md 6.1`)."""

from collections.abc import Mapping

from placement_svc.domain.errors import Invalid
from placement_svc.domain.providers import ProviderFilter
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.pages import PageKeys
from placement_svc.schemas.query import Pairs
from placement_svc.schemas.resource_providers import ProviderQuery, parse_group
from placement_svc.schemas.scalars import (
    DASHED_UUID_KEY,
    DASHED_UUID_TEXT,
    NAME_TEXT,
    String,
    Version,
    matches,
)
from placement_svc.schemas.violations import quote

PARTS = ("inventories", "usages", "traits", "aggregates", "allocations")
"""The parts of a provider that a list can include."""

_IN = "in:"
_CONTAINS = "contains:"
_UUIDS = rf"^({_IN})?{DASHED_UUID_TEXT}(, *{DASHED_UUID_TEXT})*$"


class ProviderFilterKeys(ProviderQuery):
    """The query keys that filter resource providers."""

    name = String(
        metadata={
            "description": f"The name of a provider. With `{_CONTAINS}`, a part of it"
            " (literal, case-sensitive; an extension)."
        }
    )
    uuid = String(
        metadata={
            "description": f"The uuid of a provider. With `{_IN}`, several uuids (an extension).",
            "pattern": _UUIDS,
        }
    )


class ExtendedProviderQuery(ProviderFilterKeys, PageKeys):
    """The query parameters of GET /resource_providers for a request that may use extensions."""

    include = String(
        metadata={
            "description": "Parts of each provider to include (an extension).",
            "pattern": rf"^({'|'.join(PARTS)})(, *({'|'.join(PARTS)}))*$",
        }
    )
    sort_by = String(
        pattern=rf"^-?(name|(used|free):{NAME_TEXT})$",
        hint="Sort by name, used:CLASS or free:CLASS; -used:VCPU puts the greatest first.",
        metadata={
            "description": "`name`, or the used or the free amount of a resource class; with a leading `-`,"
            " descending. By default the order is that of the uuids (an extension)."
        },
    )


def uses_extensions(pairs: Pairs) -> bool:
    """Return whether a query for resource providers has a key or a value that is an extension."""
    query = dict(pairs)
    return (
        not ProviderQuery.extension_keys.isdisjoint(query)
        or query.get("uuid", "").startswith(_IN)
        or query.get("name", "").startswith(_CONTAINS)
    )


def parse_extended_filter(query: Mapping[str, str], pairs: Pairs, version: Version) -> ProviderFilter:
    """Return the filter of a query that a schema with `ProviderFilterKeys` has loaded; raise `Invalid`."""
    name, uuid = query.get("name", ""), query.get("uuid", "")
    is_part = name.startswith(_CONTAINS)
    return ProviderFilter(
        name=None if is_part or not name else name,
        name_part=name.removeprefix(_CONTAINS) if is_part else "",
        uuids=frozenset(parse_uuids("uuid", uuid)) if "uuid" in query else None,
        group=parse_group(query, pairs, version),
    )


def parse_uuids(key: str, value: str, pattern: str = DASHED_UUID_KEY) -> list[str]:
    """Return the different uuids in ``UUID`` or ``in:UUID,UUID,...``; raise `Invalid`."""
    pieces = [value]
    if value.startswith(_IN):
        pieces = [piece.strip() for piece in value.removeprefix(_IN).split(",")]
    for piece in pieces:
        if not matches(pattern, piece):
            raise Invalid(
                f"{QUERY_ERROR}Expected '{key}' to be a uuid, or uuids of the form: in:UUID,UUID."
                f" Got: {quote(piece)}"
            )
    return list(dict.fromkeys(pieces))


def parse_include(query: Mapping[str, str]) -> frozenset[str]:
    """Return the parts in the `include` of a loaded query; raise `Invalid` for others than `PARTS`."""
    if "include" not in query:
        return frozenset()
    pieces = [piece.strip() for piece in query["include"].split(",")]
    for piece in pieces:
        if piece not in PARTS:
            raise Invalid(
                f"{QUERY_ERROR}Expected 'include' to list some of {', '.join(PARTS)}. Got: {quote(piece)}"
            )
    return frozenset(pieces)
