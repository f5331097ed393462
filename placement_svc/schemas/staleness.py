"""The query key `stale`, which lets a standby answer a read (`docs/spec/extensions.md 1.1`)."""

from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.base import Schema
from placement_svc.schemas.scalars import String


class StaleQuery(Schema):
    """The query key that all reads have for which a standby may be used."""

    stale = String(
        choices=("ok",),
        metadata={
            "description": "`ok` allows a response from a standby, which may be some seconds old"
            " (an extension)."
        },
    )


_QUERY = StaleQuery()

STALE_KEYS = frozenset(_QUERY.fields)
"""The keys of `StaleQuery`, for the `extension_keys` of the queries that can have them."""


def split_stale(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], bool]:
    """Return the pairs without the key `stale`, and whether it is there; raise `Invalid` for its value."""
    found = {key: value for key, value in pairs if key in _QUERY.fields}
    if not found:
        return pairs, False
    _QUERY.check(found, QUERY_ERROR)
    return [pair for pair in pairs if pair[0] not in _QUERY.fields], True
