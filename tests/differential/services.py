"""Two services that are asked the same, and what differs in their answers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.differential.wording import said

JSON = "application/json"
TOKEN = ("X-Auth-Token", "admin")
LONG_AGO = "Thu, 01 Jan 1970 00:00:00 GMT"

Header = tuple[str, str]
Pair = tuple[Any, Any]
"""What the reference says, and what this service says."""


@dataclass(frozen=True)
class Request:
    """A request; `target` is path and query, and nothing is added to the headers but Host."""

    method: str
    target: str
    headers: tuple[Header, ...] = (TOKEN,)
    body: bytes | None = None

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def header(self, name: str) -> str:
        """Return the values of a header, joined."""
        return ",".join(value for key, value in self.headers if key.lower() == name)

    @cached_property
    def json(self) -> Any:
        """The body, None if it is no JSON."""
        try:
            return json.loads(self.body or b"")
        except ValueError:
            return None

    def __str__(self) -> str:
        headers = "".join(f"\n    {key}: {value}" for key, value in self.headers if (key, value) != TOKEN)
        body = f"\n    {self.body.decode(errors='replace')[:3000]}" if self.body is not None else ""
        return f"{self.method} {self.target}{headers}{body}"


def ask(method: str, target: str, body: Any = None, version: str = "1.39") -> Request:
    """Return an ordinary request of an ordinary client: JSON, as the user admin."""
    headers = [TOKEN, ("OpenStack-API-Version", f"placement {version}")]
    if body is None:
        return Request(method, target, tuple(headers))
    headers.append(("Content-Type", JSON))
    return Request(method, target, tuple(headers), json.dumps(body).encode())


@dataclass(frozen=True)
class Answer:
    """The answer to a request that was asked at a moment, with the names of its headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    asked: datetime

    @cached_property
    def json(self) -> Any:
        """The body, None if it is no JSON."""
        return json.loads(self.body) if self.body and self.headers.get("content-type") == JSON else None

    @property
    def error(self) -> dict[str, Any]:
        """The error that is told in JSON, empty if none is."""
        is_error = self.status >= 400 and isinstance(self.json, dict) and "errors" in self.json
        return self.json["errors"][0] if is_error else {}

    @property
    def detail(self) -> str:
        """What the error says is wrong."""
        return str(self.error.get("detail", ""))

    @property
    def modified(self) -> datetime | None:
        """When what is told was modified, None if that is not told."""
        told = self.headers.get("last-modified")
        return parsedate_to_datetime(told) if told is not None else None

    def __str__(self) -> str:
        return f"{self.status} {self.headers}\n    {self.body.decode(errors='replace')[:1500]}"


@dataclass(frozen=True)
class Service:
    """A running service."""

    url: str

    @cached_property
    def beginning(self) -> set[str]:
        """The moments at which the service was given the standard names, as `Last-Modified` tells them."""
        standard = ("/traits/HW_NUMA_ROOT", "/resource_classes/VCPU")
        return {self._answer(ask("GET", target)).headers["last-modified"] for target in standard}

    def answer(self, request: Request) -> Answer:
        """Send a request and return its answer, in which the service is nowhere and has no beginning."""
        answer = self._answer(request)
        headers = {name: value.replace(self.url, "") for name, value in answer.headers.items()}
        if headers.get("last-modified") in self.beginning:
            headers["last-modified"] = LONG_AGO
        return replace(answer, headers=headers)

    def _answer(self, request: Request) -> Answer:
        asked = datetime.now(UTC).replace(microsecond=0)
        at = urlsplit(self.url)
        assert at.hostname
        connection = HTTPConnection(at.hostname, at.port or 80, timeout=120)
        try:
            connection.putrequest(request.method, at.path + request.target, skip_accept_encoding=True)
            for name, value in request.headers:
                connection.putheader(name, value.encode("latin-1"))
            if request.body is not None and not request.header("content-length"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read(), asked)
        finally:
            connection.close()

    def get(self, target: str) -> Any:
        """Return what GET of a target brings in JSON, None if there is no such thing."""
        answer = self.answer(ask("GET", target))
        return answer.json if answer.status == 200 else None

    def clear(self) -> None:
        """Delete all providers with what belongs to them, all custom traits and resource classes."""
        providers = self.get("/resource_providers")["resource_providers"]
        for provider in providers:
            path = f"/resource_providers/{provider['uuid']}"
            for consumer in self.get(f"{path}/allocations")["allocations"]:
                self._send(ask("DELETE", f"/allocations/{consumer}"))
            if provider["parent_provider_uuid"]:
                body = {"name": provider["name"], "parent_provider_uuid": None}
                self._send(ask("PUT", path, body))
        for provider in providers:
            self._send(ask("DELETE", f"/resource_providers/{provider['uuid']}"))
        for trait in self.get("/traits?name=startswith:CUSTOM_")["traits"]:
            self._send(ask("DELETE", f"/traits/{trait}"))
        for name in (item["name"] for item in self.get("/resource_classes")["resource_classes"]):
            if name.startswith("CUSTOM_"):
                self._send(ask("DELETE", f"/resource_classes/{name}"))

    def _send(self, request: Request) -> None:
        answer = self.answer(request)
        assert answer.status < 300, (str(request), str(answer))


HEADERS = (
    *("openstack-api-version", "vary", "cache-control", "location", "content-type", "allow"),
    *("www-authenticate", "retry-after"),
)
"""Headers that have to be the same."""

AT_ONCE = timedelta(seconds=5)
"""The longest time between the moments at which both services do the same."""

FREE_ORDER = {
    "resource_providers",
    "traits",
    "resource_classes",
    "allocation_requests",
    "allocations",
    "aggregates",
}
"""Keys of answers that hold lists in no particular order."""


def _comparable(value: Any, key: str = "") -> Any:
    """Return a JSON value such that two of them are equal when they say the same."""
    if isinstance(value, dict):
        return {name: _comparable(member, name) for name, member in value.items()}
    if isinstance(value, list):
        members = [_comparable(member) for member in value]
        is_mapping = all(isinstance(member, str) for member in members)
        return sorted(members, key=sorting_text) if key in FREE_ORDER or is_mapping else members
    return value


def sorting_text(value: Any) -> str:
    """Return a text that sorts JSON values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True)


def _content(request: Request, answer: Answer) -> Any:
    """Return what the body of an answer says, in a form that can be compared."""
    if answer.status == 200 and "limit=" in request.query:
        # Which ones are within the limit is free: docs/spec/candidates.md 5.
        return len(answer.json["allocation_requests"])
    return answer.body if answer.json is None else _comparable(answer.json)


def differences(request: Request, reference: Answer, ours: Answer) -> dict[str, Pair]:
    """Return by aspect what the two answers to a request say differently."""
    found: dict[str, Pair] = {"status": (reference.status, ours.status)}
    for name in HEADERS:
        found[name] = (reference.headers.get(name), ours.headers.get(name))
    if not _are_of_one_time(reference, ours):
        found["last-modified"] = (reference.modified, ours.modified)
    found["request id"] = (True, "x-openstack-request-id" in ours.headers)
    if reference.status >= 400:
        found |= _error_differences(reference, ours)
    else:
        found["body"] = (_content(request, reference), _content(request, ours))
    return {aspect: pair for aspect, pair in found.items() if pair[0] != pair[1]}


def _are_of_one_time(reference: Answer, ours: Answer) -> bool:
    """Tell whether both were modified while they were asked for, or in the same earlier step, or never."""
    if reference.modified is None or ours.modified is None:
        return reference.modified is ours.modified
    are_new = all(answer.modified >= answer.asked for answer in (reference, ours))
    return are_new or abs(reference.modified - ours.modified) <= AT_ONCE


def _error_differences(reference: Answer, ours: Answer) -> Iterator[tuple[str, Pair]]:
    for key in ("status", "title", "code", "max_version", "min_version"):
        yield f"error {key}", (reference.error.get(key), ours.error.get(key))
    yield "error members", (sorted(reference.error), sorted(ours.error))
    if reference.error and ours.error:
        yield "specified", (True, bool(said(reference.detail)) or reference.status >= 500)
        yield "detail", (said(reference.detail), said(ours.detail))
