"""The query strings of the console's pages."""

from placement_svc.domain.hosts import HostFilter
from placement_svc.domain.limits import MAX_AGGREGATE_UUID_LENGTH, MAX_NAME_LENGTH, MAX_PROVIDER_NAME_LENGTH
from placement_svc.schemas.base import Schema
from placement_svc.schemas.pages import PageKeys
from placement_svc.schemas.scalars import ANY_UUID, NAME, NAME_TEXT, String


class OverviewQuery(Schema):
    """The keys of the overview."""

    request_id = String()


class HostFilterKeys(Schema):
    """The keys that filter hosts."""

    text = String(max_length=MAX_PROVIDER_NAME_LENGTH)
    trait = String(pattern=NAME, max_length=MAX_NAME_LENGTH)
    aggregate = String(uuid=ANY_UUID, max_length=MAX_AGGREGATE_UUID_LENGTH)
    resource_class = String(pattern=NAME, max_length=MAX_NAME_LENGTH)


class HostsQuery(HostFilterKeys, PageKeys):
    """The keys of the list of hosts."""

    sort_by = String(
        pattern=rf"^-?(name|providers|(used|free|ratio):{NAME_TEXT})$",
        hint="Sort by name, providers, used:CLASS, free:CLASS or ratio:CLASS; -used:VCPU puts the greatest"
        " first.",
    )


class MapQuery(HostFilterKeys):
    """The keys of the map."""

    fill = String(pattern=NAME, max_length=MAX_NAME_LENGTH)
    group_by = String(choices=("aggregate", "trait"))
    group_trait = String(pattern=NAME, max_length=MAX_NAME_LENGTH)
    size_by = String(choices=("capacity",))
    page = String(pattern="^[1-9][0-9]{0,4}$", hint="A page is a whole number from 1 to 99,999.")


def host_filter(query: dict[str, str]) -> HostFilter:
    """Return the filter of a query that a schema with `HostFilterKeys` has loaded."""
    return HostFilter(**{key: query[key] for key in HostFilterKeys().fields if key in query})
