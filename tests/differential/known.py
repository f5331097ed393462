"""The known differences between the two services, each with its source; no other difference is allowed."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self
from urllib.parse import parse_qsl

from placement_svc.schemas.candidates_query import GROUP_KEYS
from tests.differential.services import Pair, Request, Response, Service, comparable, differences, sort_key
from tests.differential.wording import fixed_fragments

DASHED_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

DETAIL = frozenset({"detail"})
STATUS = frozenset({"status", "error status", "error title", "error code", "error members", "detail"})
ERROR_RESPONSE = STATUS | {"content-type", "cache-control", "last-modified", "location", "body"}
SERVER_ERROR = STATUS | {"openstack-api-version", "vary"}


@dataclass(frozen=True)
class Exchange:
    """A request, both responses to it, and their differences by aspect."""

    request: Request
    reference: Response
    ours: Response
    differences: dict[str, Pair]

    @classmethod
    def between(cls, request: Request, reference: Service, ours: Service) -> Self:
        """Send a request to both services and compare the responses."""
        responses = reference.send(request), ours.send(request)
        return cls(request, *responses, differences(request, *responses))

    @cached_property
    def query(self) -> list[tuple[str, str]]:
        """The pairs of the query string."""
        return parse_qsl(self.request.query.replace(";", "&"), keep_blank_values=True)

    def values(self, key: str) -> list[str]:
        """Return the values of a key of the query string, in their order."""
        return [value for name, value in self.query if name == key]

    @property
    def unexplained(self) -> dict[str, Pair]:
        """The differences that no known difference explains."""
        explained = {aspect for known in KNOWN_DIFFERENCES if known.applies(self) for aspect in known.aspects}
        return {aspect: pair for aspect, pair in self.differences.items() if aspect not in explained}

    def __str__(self) -> str:
        differing = "\n  ".join(
            f"{aspect}: {pair[0]} | {pair[1]}" for aspect, pair in self.unexplained.items()
        )
        return f"{self.request}\n  reference: {self.reference}\n  ours: {self.ours}\n  {differing}"[:5000]


@dataclass(frozen=True)
class KnownDifference:
    """An intended difference: the document that describes it, the aspects that may differ, and when."""

    name: str
    source: str
    aspects: frozenset[str]
    applies: Callable[[Exchange], bool]


def _keyword(response: Response) -> str:
    match = re.search(r"Failed validating '(\w+)'", response.detail)
    return match[1] if match else ""


def _contains(response: Response, *fragments: str) -> bool:
    return any(fragment in response.detail for fragment in fragments)


def _replaces_inventories(e: Exchange) -> bool:
    is_put = e.request.method == "PUT" and e.request.path.endswith("/inventories")
    return is_put or e.request.path == "/reshaper"


def _rejects_an_inventory(response: Response) -> bool:
    """Return whether the error is about an inventory whose key cannot be the name of a class."""
    return bool(re.search(r"\['inventories'\]\['additionalProperties'\]", response.detail))


def _unknown_traits(response: Response) -> str:
    match = re.search(r"No such trait\(s\): (.*)\.", response.detail)
    return match[1] if match else ""


def _is_candidates_request(e: Exchange) -> bool:
    return e.request.path == "/allocation_candidates"


def _groups(e: Exchange) -> dict[str, dict[str, list[str]]]:
    """Return the values of each key of each request group, by the suffix of the group."""
    groups: dict[str, dict[str, list[str]]] = {}
    for key, value in e.query:
        match = re.fullmatch(rf"({'|'.join(GROUP_KEYS)})(.*)", key, re.DOTALL)
        if match:
            groups.setdefault(match[2], {}).setdefault(match[1], []).append(value)
    return groups


def _classes(group: dict[str, list[str]]) -> set[str]:
    return {piece.partition(":")[0] for piece in group.get("resources", [""])[-1].split(",") if piece}


def _candidates(response: Response) -> Counter[str]:
    return Counter(sort_key(comparable(request)) for request in response.json["allocation_requests"])


def _finds_more(e: Exchange) -> bool:
    """Return whether this service finds all candidates of the reference, or more if there is a limit."""
    if e.ours.status != 200 or e.reference.status != 200:
        return False
    if e.values("limit"):
        return _candidates(e.ours).total() > _candidates(e.reference).total()
    return _candidates(e.ours) >= _candidates(e.reference)


def _accumulates(e: Exchange) -> bool:
    """Return whether the unsuffixed group and a suffixed group may request a class from the same provider."""
    groups = _groups(e)
    unsuffixed = _classes(groups.pop("", {}))
    return e.values("group_policy")[:1] != ["none"] and any(
        unsuffixed & _classes(group) for group in groups.values()
    )


def _groups_without_resources(e: Exchange) -> list[dict[str, list[str]]]:
    return [group for suffix, group in _groups(e).items() if suffix and "resources" not in group]


def _only_forbids(group: dict[str, list[str]]) -> bool:
    return all(
        piece.strip().startswith("!")
        for value in [*group.get("required", []), *group.get("member_of", [])]
        for piece in value.split(",")
    )


KNOWN_DIFFERENCES = [
    KnownDifference(
        "a browser gets a page at the root",
        "docs/spec/extensions.md 8",
        frozenset(
            {"body", "cache-control", "content-type", "last-modified", "openstack-api-version", "vary"}
        ),
        lambda e: (
            (e.request.method, e.request.path) == ("GET", "/")
            and any("text/html" in value.lower() for _, value in e.request.headers)
            and b"<h1>Placement API</h1>" in e.ours.body
        ),
    ),
    KnownDifference(
        "this service always sends Vary",
        "docs/spec/http.md 3, quirk",
        frozenset({"vary"}),
        lambda e: e.ours.headers.get("vary") == "openstack-api-version" and "vary" not in e.reference.headers,
    ),
    KnownDifference(
        "each service generates the uuid of a new provider",
        "docs/spec/resources.md 3.2: generated",
        frozenset({"location", "body"}),
        lambda e: e.request.method == "POST" and not is_given_uuid(e.request),
    ),
    KnownDifference(
        "if both name and uuid exist, the error may name either",
        "docs/spec/resources.md 3.2",
        DETAIL,
        lambda e: all(
            _contains(response, "Conflicting resource provider") for response in (e.reference, e.ours)
        ),
    ),
    KnownDifference(
        "of several violations in one object, this service reports `required` before `additionalProperties`",
        "docs/spec/http.md 7, ties",
        DETAIL,
        lambda e: {_keyword(e.reference), _keyword(e.ours)} == {"required", "additionalProperties"},
    ),
    KnownDifference(
        "NaN, Infinity, numbers out of range and unpaired surrogates are not JSON",
        "docs/differences.md",
        DETAIL,
        lambda e: (
            _contains(e.ours, "Malformed JSON")
            and bool(re.search(rb"NaN|Infinity|1e999|ud800", e.request.body or b""))
        ),
    ),
    KnownDifference(
        "an integer of more than 64 bits is shown as a floating point number",
        "docs/differences.md",
        DETAIL,
        lambda e: bool(re.search(rb"\d{20}|e\+\d{3}", e.request.body or b"")),
    ),
    KnownDifference(
        "a generation is shown as an integer",
        "docs/differences.md",
        DETAIL,
        lambda e: (
            fixed_fragments(re.sub(r"(?<=\d)\.0\b", "", e.reference.detail)) == fixed_fragments(e.ours.detail)
        ),
    ),
    KnownDifference(
        "of several invalid uuids, the error may name any",
        "docs/spec/resources.md 3.1",
        DETAIL,
        lambda e: all(_contains(response, "contain valid UUID(s)") for response in (e.reference, e.ours)),
    ),
    KnownDifference(
        "errors do not name the failing branch of an `anyOf`",
        "docs/spec/http.md 7, anyOf",
        DETAIL,
        lambda e: "in schema[0]" in e.reference.detail and _keyword(e.reference) == _keyword(e.ours),
    ),
    KnownDifference(
        "an invalid inventory with an invalid resource class name is a server error of the reference",
        "docs/spec/resources.md 4.3, docs/spec/allocations.md Q3",
        SERVER_ERROR,
        lambda e: (
            e.reference.status == 500
            and (e.request.path.endswith("/inventories") or e.request.path == "/reshaper")
            and (_contains(e.ours, "JSON does not validate", "No such resource class"))
        ),
    ),
    KnownDifference(
        "an inventory with an invalid resource class name is validated together with the others",
        "docs/spec/resources.md 4.3, docs/spec/allocations.md Q3",
        DETAIL,
        lambda e: _replaces_inventories(e) and _rejects_an_inventory(e.ours),
    ),
    KnownDifference(
        "invalid inventories are reported before unknown providers and generation conflicts",
        "docs/spec/resources.md 4.3, docs/spec/allocations.md Q3",
        SERVER_ERROR,
        lambda e: (
            _replaces_inventories(e)
            and _rejects_an_inventory(e.ours)
            and _contains(e.reference, "in inventories not found", "resource provider generation conflict")
        ),
    ),
    KnownDifference(
        "of several unknown traits after one `in:` or in `root_required`, the error may name any",
        "docs/spec/candidates.md 2.4",
        DETAIL,
        lambda e: any(
            {_unknown_traits(response) for response in (e.reference, e.ours)}
            <= {piece.strip().lstrip("!") for piece in value.removeprefix("in:").split(",")}
            for key, value in e.query
            if value.startswith("in:") or key == "root_required"
        ),
    ),
    KnownDifference(
        "D1: the reference accumulates amounts over candidates",
        "docs/spec/candidates.md 7",
        frozenset({"body"}),
        lambda e: _is_candidates_request(e) and _accumulates(e),
    ),
    KnownDifference(
        "D2: the reference uses one arbitrary anchor for an unsuffixed group from sharing providers only",
        "docs/spec/candidates.md 7",
        frozenset({"body"}),
        lambda e: _is_candidates_request(e) and "" in _groups(e) and len(_groups(e)) > 1 and _finds_more(e),
    ),
    KnownDifference(
        "D3: the reference fails if the tree of a nested sharing provider cannot supply the unsuffixed group",
        "docs/spec/candidates.md 7",
        SERVER_ERROR | {"body", "last-modified", "cache-control"},
        lambda e: _is_candidates_request(e) and e.reference.status == 500 and e.ours.status == 200,
    ),
    KnownDifference(
        "D5: a group without resources that only forbids traits or aggregates, or only has `in_tree`",
        "docs/spec/candidates.md 7",
        frozenset({"body"}),
        lambda e: (
            _is_candidates_request(e)
            and any(_only_forbids(group) for group in _groups_without_resources(e))
            and _finds_more(e)
        ),
    ),
    KnownDifference(
        "D6: `in_tree` of a group without resources",
        "docs/spec/candidates.md 7",
        frozenset({"body"}),
        lambda e: (
            _is_candidates_request(e) and any("in_tree" in group for group in _groups_without_resources(e))
        ),
    ),
    KnownDifference(
        "D8: an amount of more than 64 bits",
        "docs/spec/candidates.md 7, docs/spec/resources.md 3.1",
        SERVER_ERROR | {"body", "last-modified", "cache-control"},
        lambda e: e.reference.status == 500 and bool(re.search(r"\d{19}", e.request.query)),
    ),
    KnownDifference(
        "D9: every value of a repeated `limit` or `group_policy` is validated",
        "docs/spec/candidates.md 7",
        ERROR_RESPONSE | SERVER_ERROR,
        lambda e: (
            e.ours.status == 400
            and e.reference.status in (200, 400, 500)
            and any(len(e.values(key)) > 1 for key in ("limit", "group_policy"))
        ),
    ),
    KnownDifference(
        "D10: an unknown name is an error even if an earlier condition has no match",
        "docs/spec/candidates.md 7",
        ERROR_RESPONSE,
        lambda e: (
            _is_candidates_request(e)
            and e.reference.status == 200
            and not e.reference.json["allocation_requests"]
            and _contains(e.ours, "No such trait", "No such resource class")
        ),
    ),
    KnownDifference(
        "the capacity is limited",
        "docs/differences.md",
        frozenset({"body"}),
        lambda e: _is_candidates_request(e) and bool(re.search(rb"\d{20}", e.reference.body)),
    ),
    KnownDifference(
        "paths are decoded as UTF-8",
        "docs/differences.md",
        DETAIL,
        lambda e: bool(re.search("%[89A-F]", e.request.path)),
    ),
    KnownDifference(
        "a uuid in a query string must have the dashed form",
        "docs/spec/http.md 12",
        ERROR_RESPONSE,
        lambda e: (
            _contains(e.ours, "is not a 'uuid'")
            and not all(
                DASHED_UUID.fullmatch(value) for key in ("uuid", "in_tree") for value in e.values(key)
            )
        ),
    ),
    KnownDifference(
        'the "no inventory" error omits classes that the request only releases',
        "docs/differences.md",
        DETAIL,
        lambda e: all(re.search("Inventory for '.*' invalid", a.detail) for a in (e.reference, e.ours)),
    ),
    KnownDifference(
        "deleting the inventory of an unknown class is reported as a missing inventory",
        "docs/spec/resources.md 4.7",
        DETAIL,
        lambda e: _contains(e.ours, "found for delete") and _contains(e.reference, "No such resource class"),
    ),
]


def is_given_uuid(request: Request) -> bool:
    """Return whether the body of a request for a new provider has a uuid."""
    return isinstance(request.json, dict) and "uuid" in request.json
