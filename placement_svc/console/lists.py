"""The size of the pages of the console's lists, the links between them, and their errors."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from flask import render_template

from placement_svc.console.context import filled_pairs, here
from placement_svc.console.labels import LABELS, with_labels
from placement_svc.domain.errors import Invalid
from placement_svc.domain.pages import Page, PageRequest
from placement_svc.domain.wording import short_reason
from placement_svc.http.errors import keep_error, status_of
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


def keep_form(template: str) -> Callable[[Callable[[], str]], Callable[[], Any]]:
    """Return a decorator for a view with a form, which shows the form as it was sent with an `Invalid`.

    `template` is that of the view. Its values are the query as sent, and the text of the error as `problem`.
    """

    def decorate(view: Callable[[], str]) -> Callable[[], Any]:
        @wraps(view)
        def show() -> Any:
            query = dict(filled_pairs())
            try:
                return view()
            except Invalid as error:
                keep_error(error)
                problem = with_labels(short_reason(str(error)), LABELS.get)
                page = render_template(template, query=query, problem=problem)
                return page, status_of(error)

        return show

    return decorate
