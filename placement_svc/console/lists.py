"""The size of the pages of the console's lists, and the links between them."""

from dataclasses import replace
from typing import Any

from placement_svc.console.context import here
from placement_svc.domain.pages import Page, PageRequest
from placement_svc.schemas.pages import write_marker

PAGE_SIZE = 50
MAX_PAGE_SIZE = 500


def with_page_size(page: PageRequest) -> PageRequest:
    """Return `page` with a limit that a page of the console can show."""
    return replace(page, limit=min(page.limit or PAGE_SIZE, MAX_PAGE_SIZE))


def page_links(page: PageRequest, found: Page[Any]) -> dict[str, Any]:
    """Return what the template of a list needs for the headers that sort it, and for its pager."""
    more = here(marker=write_marker(found.last, page.sort)) if found.has_more and found.last else None
    return {
        "sort": page.sort,
        "is_first": page.after is None,
        "next_url": more,
        "first_url": here(marker=None),
    }
