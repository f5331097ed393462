"""How the two services are known to differ, each with its reason: nothing else may differ."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self
from urllib.parse import parse_qsl

from tests.differential.services import Answer, Pair, Request, Service, differences, sorting_text
from tests.differential.wording import said

DASHED_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

WORDS = frozenset({"detail"})
STATUS = frozenset({"status", "error status", "error title", "error code", "error members", "detail"})
REFUSAL = STATUS | {"content-type", "cache-control", "last-modified", "location", "body"}
CRASH = STATUS | {"openstack-api-version", "vary"}


@dataclass(frozen=True)
class Exchange:
    """A request, what the reference and this service answer, and what differs in that, by aspect."""

    request: Request
    reference: Answer
    ours: Answer
    differences: dict[str, Pair]

    @classmethod
    def of(cls, request: Request, reference: Service, ours: Service) -> Self:
        """Send a request to both services."""
        answers = reference.answer(request), ours.answer(request)
        return cls(request, *answers, differences(request, *answers))

    @cached_property
    def query(self) -> list[tuple[str, str]]:
        """The keys and values of the request's query string."""
        return parse_qsl(self.request.query.replace(";", "&"), keep_blank_values=True)

    def values(self, key: str) -> list[str]:
        """Return the values of a key of the query string, in their order."""
        return [value for found, value in self.query if found == key]

    @property
    def unexplained(self) -> dict[str, Pair]:
        """What differs for no known reason."""
        explained = {aspect for known in KNOWN if known.applies(self) for aspect in known.aspects}
        return {aspect: pair for aspect, pair in self.differences.items() if aspect not in explained}

    def __str__(self) -> str:
        differing = "\n  ".join(
            f"{aspect}: {pair[0]} | {pair[1]}" for aspect, pair in self.unexplained.items()
        )
        return f"{self.request}\n  reference: {self.reference}\n  ours: {self.ours}\n  {differing}"[:5000]


@dataclass(frozen=True)
class Known:
    """A difference that is meant: where it is from, why, which aspects of answers it may touch, and when."""

    name: str
    source: str
    aspects: frozenset[str]
    applies: Callable[[Exchange], bool]


def _keyword(answer: Answer) -> str:
    found = re.search(r"Failed validating '(\w+)'", answer.detail)
    return found[1] if found else ""


def _says(answer: Answer, *fragments: str) -> bool:
    return any(fragment in answer.detail for fragment in fragments)


def _is_about_a_record(answer: Answer) -> bool:
    """Tell whether an inventory is refused that was looked at by itself, not in its place in the body."""
    return bool(re.search(r"On instance(: |\['(?!inventories|allocations))", answer.detail))


def _unknown_trait(answer: Answer) -> str:
    found = re.search(r"No such trait\(s\): (.*)\.", answer.detail)
    return found[1] if found else ""


def _asks_for_candidates(e: Exchange) -> bool:
    return e.request.path == "/allocation_candidates"


def _groups(e: Exchange) -> dict[str, dict[str, list[str]]]:
    """Return what each request group asks: by suffix, the values of its keys."""
    groups: dict[str, dict[str, list[str]]] = {}
    for key, value in e.query:
        found = re.fullmatch(r"(resources|required|member_of|in_tree)(.*)", key, re.DOTALL)
        if found:
            groups.setdefault(found[2], {}).setdefault(found[1], []).append(value)
    return groups


def _classes(group: dict[str, list[str]]) -> set[str]:
    return {piece.partition(":")[0] for piece in group.get("resources", [""])[-1].split(",") if piece}


def _candidates(answer: Answer) -> Counter[str]:
    return Counter(sorting_text(request) for request in answer.json["allocation_requests"])


def _finds_more(e: Exchange) -> bool:
    """Tell whether this service finds all candidates that the reference finds."""
    if e.ours.status != 200 or e.reference.status != 200:
        return False
    if e.values("limit"):
        return _candidates(e.ours).total() > _candidates(e.reference).total()
    return _candidates(e.ours) >= _candidates(e.reference)


def _accumulates(e: Exchange) -> bool:
    groups = _groups(e)
    own = _classes(groups.pop("", {}))
    return e.values("group_policy")[:1] != ["none"] and any(
        own & _classes(group) for group in groups.values()
    )


def _resourceless(e: Exchange) -> list[dict[str, list[str]]]:
    return [group for suffix, group in _groups(e).items() if suffix and "resources" not in group]


def _only_forbids(group: dict[str, list[str]]) -> bool:
    return all(
        piece.strip().startswith("!")
        for value in [*group.get("required", []), *group.get("member_of", [])]
        for piece in value.split(",")
    )


KNOWN = [
    Known(
        "vary is sent always, also where the reference forgets it",
        "docs/spec/http.md 3, quirk",
        frozenset({"vary"}),
        lambda e: e.ours.headers.get("vary") == "openstack-api-version" and "vary" not in e.reference.headers,
    ),
    Known(
        "a provider is given a uuid of its own",
        "docs/spec/resources.md 3.2: generated",
        frozenset({"location", "body"}),
        lambda e: e.request.method == "POST" and not is_given_uuid(e.request),
    ),
    Known(
        "name and uuid are both taken: either may be told",
        "docs/spec/resources.md 3.2",
        WORDS,
        lambda e: all(_says(answer, "Conflicting resource provider") for answer in (e.reference, e.ours)),
    ),
    Known(
        "of several faults of one object, `required` comes before `additionalProperties`",
        "docs/spec/http.md 7, ties",
        WORDS,
        lambda e: {_keyword(e.reference), _keyword(e.ours)} == {"required", "additionalProperties"},
    ),
    Known(
        "NaN, Infinity, numbers out of range and unpaired surrogates are not JSON",
        "docs/differences.md",
        WORDS,
        lambda e: (
            _says(e.ours, "Malformed JSON")
            and bool(re.search(rb"NaN|Infinity|1e999|ud800", e.request.body or b""))
        ),
    ),
    Known(
        "an integer of more than 64 bits is shown as a floating point number",
        "docs/differences.md",
        WORDS,
        lambda e: bool(re.search(rb"\d{20}|e\+\d{3}", e.request.body or b"")),
    ),
    Known(
        "a generation is shown as an integer",
        "docs/differences.md",
        WORDS,
        lambda e: said(re.sub(r"(?<=\d)\.0\b", "", e.reference.detail)) == said(e.ours.detail),
    ),
    Known(
        "of several pieces that are no uuid any may be told",
        "docs/spec/resources.md 3.1",
        WORDS,
        lambda e: all(_says(answer, "contain valid UUID(s)") for answer in (e.reference, e.ours)),
    ),
    Known(
        "no text where the failing branch of an `anyOf` stands",
        "docs/spec/http.md 7, anyOf",
        WORDS,
        lambda e: "in schema[0]" in e.reference.detail and _keyword(e.reference) == _keyword(e.ours),
    ),
    Known(
        "what is no inventory, under what is no name of a resource class",
        "docs/spec/resources.md 4.3, docs/spec/allocations.md Q3",
        CRASH,
        lambda e: (
            e.reference.status == 500
            and (e.request.path.endswith("/inventories") or e.request.path == "/reshaper")
            and (_says(e.ours, "JSON does not validate", "No such resource class"))
        ),
    ),
    Known(
        "what stands under what is no name of a resource class is judged at once",
        "docs/spec/resources.md 4.3, docs/spec/allocations.md Q3",
        WORDS,
        lambda e: (
            (
                (e.request.method == "PUT" and e.request.path.endswith("/inventories"))
                or e.request.path == "/reshaper"
            )
            and _is_about_a_record(e.ours)
        ),
    ),
    Known(
        "what is no inventory is told before providers are looked for",
        "docs/spec/allocations.md Q3",
        WORDS | {"error code"},
        lambda e: (
            e.request.path == "/reshaper"
            and _is_about_a_record(e.ours)
            and _says(e.reference, "in inventories not found")
        ),
    ),
    Known(
        "of several unknown traits after one `in:` none is the first",
        "docs/spec/candidates.md 2.4",
        WORDS,
        lambda e: any(
            {_unknown_trait(answer) for answer in (e.reference, e.ours)}
            <= {piece.strip() for piece in value[3:].split(",")}
            for _, value in e.query
            if value.startswith("in:")
        ),
    ),
    Known(
        "D1: amounts that accumulate over candidates",
        "docs/spec/candidates.md 7",
        frozenset({"body"}),
        lambda e: _asks_for_candidates(e) and _accumulates(e),
    ),
    Known(
        "D2: one arbitrary anchor of an unsuffixed group that sharing providers supply",
        "docs/spec/candidates.md 7",
        frozenset({"body"}),
        lambda e: _asks_for_candidates(e) and "" in _groups(e) and len(_groups(e)) > 1 and _finds_more(e),
    ),
    Known(
        "D3: a nested sharing supplier whose own tree drops out",
        "docs/spec/candidates.md 7",
        CRASH | {"body", "last-modified", "cache-control"},
        lambda e: _asks_for_candidates(e) and e.reference.status == 500 and e.ours.status == 200,
    ),
    Known(
        "D5: a group without resources that only forbids, or only names a tree",
        "docs/spec/candidates.md 7",
        frozenset({"body"}),
        lambda e: (
            _asks_for_candidates(e)
            and any(_only_forbids(group) for group in _resourceless(e))
            and _finds_more(e)
        ),
    ),
    Known(
        "D6: `in_tree` of a group without resources",
        "docs/spec/candidates.md 7",
        frozenset({"body"}),
        lambda e: _asks_for_candidates(e) and any("in_tree" in group for group in _resourceless(e)),
    ),
    Known(
        "D8: more than 64 bits of a class",
        "docs/spec/candidates.md 7, docs/spec/resources.md 3.1",
        CRASH | {"body", "last-modified", "cache-control"},
        lambda e: e.reference.status == 500 and bool(re.search(r"\d{19}", e.request.query)),
    ),
    Known(
        "D9: of a repeated `limit` or `group_policy` every value is checked",
        "docs/spec/candidates.md 7",
        REFUSAL | CRASH,
        lambda e: (
            e.ours.status == 400
            and e.reference.status in (200, 400, 500)
            and any(len(e.values(key)) > 1 for key in ("limit", "group_policy"))
        ),
    ),
    Known(
        "D10: an unknown name is reported, whatever was found before it",
        "docs/spec/candidates.md 7",
        REFUSAL,
        lambda e: (
            _asks_for_candidates(e)
            and e.reference.status == 200
            and not e.reference.json["allocation_requests"]
            and _says(e.ours, "No such trait", "No such resource class")
        ),
    ),
    Known(
        "the capacity is limited",
        "docs/differences.md",
        frozenset({"body"}),
        lambda e: _asks_for_candidates(e) and bool(re.search(rb"\d{20}", e.reference.body)),
    ),
    Known(
        "paths are decoded as UTF-8",
        "docs/differences.md",
        WORDS,
        lambda e: bool(re.search("%[89A-F]", e.request.path)),
    ),
    Known(
        "a uuid in a query string is exactly one",
        "docs/spec/http.md 12",
        REFUSAL,
        lambda e: (
            _says(e.ours, "is not a 'uuid'")
            and not all(
                DASHED_UUID.fullmatch(value) for key in ("uuid", "in_tree") for value in e.values(key)
            )
        ),
    ),
    Known(
        'the "no inventory" error omits classes that the request only releases',
        "docs/differences.md",
        WORDS,
        lambda e: all(re.search("Inventory for '.*' invalid", a.detail) for a in (e.reference, e.ours)),
    ),
    Known(
        "an unknown class is nothing but a class without inventory",
        "docs/spec/resources.md 4.7",
        WORDS,
        lambda e: _says(e.ours, "found for delete") and _says(e.reference, "No such resource class"),
    ),
]


def is_given_uuid(request: Request) -> bool:
    """Tell whether the body of a new provider names its uuid."""
    return isinstance(request.json, dict) and "uuid" in request.json
