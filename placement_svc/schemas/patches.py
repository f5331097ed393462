"""The common parts of the bodies of PATCH requests (`docs/spec/extensions.md 6.5`)."""

from collections.abc import Mapping, Sequence

from placement_svc.domain.errors import Invalid
from placement_svc.domain.wording import list_sorted_names

EXPECTED_GENERATION = {
    "description": "The generation that the provider must have; without it, the request is never a 409."
}


def check_disjoint(body: Mapping[str, Sequence[str]]) -> None:
    """Raise `Invalid` if `body` adds and removes the same name."""
    names = sorted(set(body.get("add", ())) & set(body.get("remove", ())))
    if names:
        raise Invalid(f"Names cannot be both in 'add' and in 'remove': {list_sorted_names(names)}")
