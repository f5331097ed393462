"""The labels of the fields in the forms of lists, and error texts with labels in place of keys."""

import re
from collections.abc import Callable

from placement_svc.domain.wording import QUERY_ERROR

LABELS = {
    "text": "Name or uuid",
    "trait": "Trait",
    "aggregate": "Aggregate",
    "resource_class": "Resource class",
    "sort_by": "Order",
    "limit": "Rows on a page",
    "project_id": "Project",
    "user_id": "User",
    "consumer_type": "Type",
    "in_tree": "Host",
    "resource_provider": "Provider",
    "fill": "Fill by",
    "group_by": "Group by",
    "group_trait": "Trait of the groups",
    "size_by": "Size by",
    "request_id": "Request id",
}
"""The labels of the fields by the keys of the query."""

_QUOTED_KEY = re.compile(r"(?<=['`])\w+(?=['`])")
_VALUE = re.compile(r": |Got:")
"""What precedes the value in the text of an error."""


def with_labels(reason: str, label_of: Callable[[str], str | None]) -> str:
    """Return the text of an error with the labels of fields in place of the keys that it quotes.

    `label_of` returns the label of a key, or None if the key has no field.
    """
    text = reason.removeprefix(QUERY_ERROR)
    value = _VALUE.search(text)
    end = value.start() if value else len(text)
    return _QUOTED_KEY.sub(lambda key: label_of(key[0]) or key[0], text[:end]) + text[end:]
