"""Microversions: the history of changes, and negotiation (`docs/spec/http.md 3`)."""

import re
from collections.abc import Sequence
from functools import cache, lru_cache

import microversion_parse
from flask import g, request
from microversion_parse import Version
from werkzeug.exceptions import BadRequest, NotAcceptable

from placement_svc.domain.version_header import EXTENSION_VERSIONS, EXTENSIONS, PLACEMENT, VERSION_HEADER

CHANGES: dict[str, str] = {
    "1.0": "Resource providers, their inventories and usages; allocations.",
    "1.1": "Aggregates of a resource provider.",
    "1.2": "Custom resource classes.",
    "1.3": "`member_of` filters the list of resource providers.",
    "1.4": "`resources` filters the list of resource providers.",
    "1.5": "All inventories of a resource provider can be deleted at once.",
    "1.6": "Traits, and traits of a resource provider.",
    "1.7": "PUT of a resource class creates it if it does not exist.",
    "1.8": "`project_id` and `user_id` are required when allocations are written.",
    "1.9": "Usages of a project.",
    "1.10": "Allocation candidates.",
    "1.11": "A resource provider links to its allocations.",
    "1.12": "Allocations are keyed by resource provider; they show their project and user.",
    "1.13": "Allocations of several consumers in one POST.",
    "1.14": "Resource providers form trees; `in_tree` filters their list.",
    "1.15": "`Last-Modified` and `Cache-Control` headers.",
    "1.16": "`limit` on allocation candidates.",
    "1.17": "`required` traits on allocation candidates; traits in provider summaries.",
    "1.18": "`required` traits filter the list of resource providers.",
    "1.19": "Aggregates of a resource provider show, check and increment its generation.",
    "1.20": "POST of a resource provider returns it.",
    "1.21": "`member_of` on allocation candidates.",
    "1.22": "Forbidden traits, `required=!TRAIT`.",
    "1.23": "Errors carry a `code`.",
    "1.24": "`member_of` may be repeated.",
    "1.25": "Suffixed request groups and `group_policy`.",
    "1.26": "`reserved` of an inventory may equal `total`.",
    "1.27": "Provider summaries show all resource classes.",
    "1.28": "Consumers have generations; a write may leave a consumer without allocations.",
    "1.29": "Allocation candidates combine the resource providers of a tree.",
    "1.30": "The reshaper.",
    "1.31": "`in_tree` on allocation candidates.",
    "1.32": "Forbidden aggregates, `member_of=!AGGREGATE`.",
    "1.33": "The suffix of a request group may have letters, digits, `_` and `-`.",
    "1.34": "Allocation candidates show which resource providers supply which group.",
    "1.35": "`root_required` on allocation candidates.",
    "1.36": "`same_subtree`, and request groups without resources.",
    "1.37": "A resource provider can be moved to another parent, or made a root.",
    "1.38": "Consumers have types, and usages are grouped by them.",
    "1.39": "`required=in:A,B`, and repeated `required`.",
}
"""Each microversion and what it changed, oldest first."""

OLDEST, *_, NEWEST = CHANGES

_NUMBER = r"[ \t]*[+-]?[0-9]{1,4300}[ \t]*"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}")


class BadMicroversion(BadRequest):
    """The requested microversion is malformed."""

    def __init__(self, sent: str) -> None:
        super().__init__(f"Invalid microversion: invalid version string: {sent}")


class UnacceptableMicroversion(NotAcceptable):
    """The requested version of a service is not supported; `range` has the oldest and the newest that are."""

    def __init__(self, sent: str, supported: Sequence[str]) -> None:
        super().__init__(f"Unacceptable version header: {sent}")
        self.range = {"max_version": supported[-1], "min_version": supported[0]}


@cache
def _parsed(version: str) -> Version:
    return microversion_parse.parse_version_string(version)


@lru_cache
def negotiate(header: str, service: str, supported: tuple[str, ...]) -> Version | None:
    """Return the version of `service` that a value of `VERSION_HEADER` selects, None if it names no version.

    `supported` has the versions of the service, oldest first. The values of a repeated header are joined
    with commas. Raises `BadMicroversion` for a malformed version and `UnacceptableMicroversion` for an
    unsupported one.
    """
    sent = microversion_parse.get_version({VERSION_HEADER: header}, service)
    if not sent:
        return None
    if sent == "latest":
        return _parsed(supported[-1])
    # Python's `int`, which parses the two numbers, also accepts `1_0`, and fails for more than 4,300 digits.
    if not _VERSION.fullmatch(sent):
        raise BadMicroversion(sent)
    version = microversion_parse.parse_version_string(sent)
    if str(version) not in supported:
        raise UnacceptableMicroversion(sent, supported)
    return version


def negotiate_request(*, is_extension_path: bool) -> None:
    """Negotiate the versions of Placement and of the extensions for the current request.

    - `g.microversion` is that of Placement: 1.0 if the request names none, and always the newest if
      `is_extension_path`.
    - `g.extension_version` is that of the extensions, None if the request does not name them.
    - `g.version_header` is the value of `VERSION_HEADER` in the response.

    Raise what `negotiate` raises, for Placement first (`docs/spec/extensions.md 1`).
    """
    header = request.headers.get(VERSION_HEADER, "")
    placement = negotiate(header, PLACEMENT, tuple(CHANGES)) or _parsed(OLDEST)
    extensions = negotiate(header, EXTENSIONS, EXTENSION_VERSIONS)
    g.microversion = _parsed(NEWEST) if is_extension_path else placement
    g.extension_version = extensions
    g.version_header = f"{PLACEMENT} {placement}"
    if extensions or is_extension_path:
        g.version_header += f", {EXTENSIONS} {extensions or EXTENSION_VERSIONS[-1]}"


def is_requested() -> bool:
    """Return whether the current request selects a microversion; otherwise 1.0 applies by default."""
    sent = {VERSION_HEADER: request.headers.get(VERSION_HEADER, "")}
    return bool(microversion_parse.get_version(sent, PLACEMENT))


def allows_extensions() -> bool:
    """Return whether the current request may use extensions on paths of Placement.

    It must select the newest microversion, and a version of the extensions.
    """
    return g.extension_version is not None and since(NEWEST)


def current() -> Version | None:
    """Return the microversion of the current request, None before negotiation."""
    version: Version | None = g.get("microversion")
    return version


def since(version: str) -> bool:
    """Return whether the microversion of the current request is `version` or newer."""
    return bool(g.microversion >= _parsed(version))
