"""The file of requests that the metrics watch: a YAML mapping of names to query strings."""

from functools import partial
from pathlib import Path

import microversion_parse

from placement_svc.domain.errors import Invalid
from placement_svc.domain.fits import FitsRequest
from placement_svc.http.microversion import NEWEST
from placement_svc.http.watched_names import WatchedNames
from placement_svc.schemas.allocation_candidates import check_group_count
from placement_svc.schemas.fits import parse_fits
from placement_svc.schemas.query import parse_pairs

_REQUESTS = WatchedNames("request", "a query string", "m1.large: resources=VCPU:4,MEMORY_MB:8192")
_KEYS_OF_PAGES = frozenset({"limit", "marker", "group_by"})


def read(path: Path, max_groups: int) -> dict[str, FitsRequest]:
    """Return the requests of a file by name; raise `SetupError` if the file or a request is not valid.

    A request is the query string of `GET /allocation_candidates/capacity`, without `limit`, `marker` and
    `group_by`. Names of traits and resource classes are not looked up here.
    """
    return _REQUESTS.read(path, partial(_parse, max_groups))


def _parse(max_groups: int, text: str) -> FitsRequest:
    pairs = parse_pairs(text.encode())
    check_group_count(pairs, max_groups)
    if unused := sorted(_KEYS_OF_PAGES.intersection(key for key, _ in pairs)):
        raise Invalid(f"it has no pages and no groups, so it cannot have '{unused[0]}'.")
    fits_request, _ = parse_fits(pairs, microversion_parse.parse_version_string(NEWEST))
    return fits_request
