"""The query of GET /capacity (`docs/spec/extensions.md 6.4`)."""

from collections.abc import Mapping

from placement_svc.domain.capacity import BY_CONSUMER, Grouping
from placement_svc.domain.errors import Invalid
from placement_svc.domain.pages import PageRequest
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.pages import PageKeys, parse_page
from placement_svc.schemas.provider_lists import ProviderFilterKeys
from placement_svc.schemas.scalars import DASHED_UUID_KEY, NAME_TEXT, String


class CapacityQuery(ProviderFilterKeys, PageKeys):
    """The query parameters of GET /capacity."""

    group_by = String(
        choices=tuple(grouping.value for grouping in Grouping),
        metadata={"description": "Sums for each group instead of all; needed by `limit` and `sort_by`."},
    )
    sort_by = String(
        pattern=rf"^-?(used|free|ratio):{NAME_TEXT}$",
        hint="Sort by used:CLASS, free:CLASS or ratio:CLASS; -used:VCPU puts the greatest first.",
        metadata={
            "description": "An amount of a resource class, or the ratio of its used amount to its capacity;"
            " with a leading `-`, descending."
        },
    )


def parse_groups(query: Mapping[str, str]) -> tuple[Grouping | None, PageRequest]:
    """Return the grouping (None: all in one) and the page of a loaded query; raise `Invalid`."""
    if "group_by" not in query:
        needing = [key for key in ("limit", "marker", "sort_by") if key in query]
        if needing:
            raise Invalid(f"{QUERY_ERROR}'{needing[0]}' needs 'group_by'")
        return None, PageRequest()
    grouping = Grouping(query["group_by"])
    page = parse_page(query, DASHED_UUID_KEY if grouping is Grouping.ROOT else "")
    if page.sort is not None and grouping in BY_CONSUMER and page.sort.attribute != "used":
        raise Invalid(f"{QUERY_ERROR}With 'group_by={grouping}', 'sort_by' must be of the form used:CLASS")
    return grouping, page
