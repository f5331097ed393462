"""The file of requests that the metrics watch: a YAML mapping of names to query strings."""

from pathlib import Path

import microversion_parse
import yaml  # type: ignore[import-untyped]

from placement_svc.domain.errors import Invalid, SetupError
from placement_svc.domain.fits import FitsRequest
from placement_svc.domain.limits import MAX_NAME_LENGTH
from placement_svc.http.microversion import NEWEST
from placement_svc.http.watched_file import read_regular_file
from placement_svc.schemas.allocation_candidates import check_group_count
from placement_svc.schemas.fits import parse_fits
from placement_svc.schemas.query import parse_pairs

MAX_REQUESTS = 100
"""The most requests that a file may have: each is computed once a minute."""

_KEYS_OF_PAGES = frozenset({"limit", "marker", "group_by"})


def read(path: Path, max_groups: int) -> dict[str, FitsRequest]:
    """Return the requests of a file by name; raise `SetupError` if the file or a request is not valid.

    A request is the query string of `GET /allocation_candidates/capacity`, without `limit`, `marker` and
    `group_by`. Names of traits and resource classes are not looked up here.
    """
    try:
        content = yaml.safe_load(read_regular_file(path))
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise _error(path, f"is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise _error(path, "must map names to requests, as in m1.large: resources=VCPU:4,MEMORY_MB:8192")
    if len(content) > MAX_REQUESTS:
        raise _error(path, f"has {len(content)} requests, more than {MAX_REQUESTS}")
    return {_name(path, name): _request(path, name, text, max_groups) for name, text in content.items()}


def _error(path: Path, problem: str) -> SetupError:
    return SetupError(f"The file of watched requests {path} {problem}")


def _name(path: Path, name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise _error(
            path, f"has the name {name!r}: it must be a text of 1 to {MAX_NAME_LENGTH} printable characters"
        )
    return name


def _request(path: Path, name: object, text: object, max_groups: int) -> FitsRequest:
    if not isinstance(text, str):
        raise _error(path, f"must have a query string for {name}, not {text!r}")
    try:
        pairs = parse_pairs(text.encode())
        check_group_count(pairs, max_groups)
        if unused := sorted(_KEYS_OF_PAGES.intersection(key for key, _ in pairs)):
            raise Invalid(f"it has no pages and no groups, so it cannot have '{unused[0]}'.")
        fits_request, _ = parse_fits(pairs, microversion_parse.parse_version_string(NEWEST))
    except Invalid as error:
        raise _error(path, f"has an invalid request for {name}: {error}") from error
    return fits_request
