"""Send the same request to two services, and compare their responses."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.differential.wording import first_sentence, fixed_fragments

JSON = "application/json"
TOKEN = ("X-Auth-Token", "admin")
LONG_AGO = "Thu, 01 Jan 1970 00:00:00 GMT"

Header = tuple[str, str]
Pair = tuple[Any, Any]
"""A value from the reference, and the value from this service."""


@dataclass(frozen=True)
class Request:
    """A request; `target` is path and query. Only Host and Content-Length are added to `headers`."""

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
        """The parsed body, None if it is not JSON."""
        try:
            return json.loads(self.body or b"")
        except ValueError:
            return None

    def __str__(self) -> str:
        headers = "".join(f"\n    {key}: {value}" for key, value in self.headers if (key, value) != TOKEN)
        body = f"\n    {self.body.decode(errors='replace')[:3000]}" if self.body is not None else ""
        return f"{self.method} {self.target}{headers}{body}"


def api_request(method: str, target: str, body: Any = None, version: str = "1.39") -> Request:
    """Return a valid JSON request of an administrator."""
    headers = [TOKEN, ("OpenStack-API-Version", f"placement {version}")]
    if body is None:
        return Request(method, target, tuple(headers))
    headers.append(("Content-Type", JSON))
    return Request(method, target, tuple(headers), json.dumps(body).encode())


@dataclass(frozen=True)
class Response:
    """A response; header names are in lower case, and `sent_at` is when the request was sent."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent_at: datetime

    @cached_property
    def json(self) -> Any:
        """The parsed body, None if its type is not JSON."""
        return json.loads(self.body) if self.body and self.headers.get("content-type") == JSON else None

    @property
    def error(self) -> dict[str, Any]:
        """The first error of a JSON error response, empty if there is none."""
        is_error = self.status >= 400 and isinstance(self.json, dict) and "errors" in self.json
        return self.json["errors"][0] if is_error else {}

    @property
    def detail(self) -> str:
        """The `detail` of the error, empty if there is none."""
        return str(self.error.get("detail", ""))

    @property
    def modified(self) -> datetime | None:
        """The time of `Last-Modified`, None without this header."""
        value = self.headers.get("last-modified")
        return parsedate_to_datetime(value) if value is not None else None

    def __str__(self) -> str:
        return f"{self.status} {self.headers}\n    {self.body.decode(errors='replace')[:1500]}"


@dataclass(frozen=True)
class Service:
    """A running service."""

    url: str

    @cached_property
    def standard_name_times(self) -> set[str]:
        """The values of `Last-Modified` for standard traits and standard resource classes."""
        targets = ("/traits/HW_NUMA_ROOT", "/resource_classes/VCPU")
        return {self._send(api_request("GET", target)).headers["last-modified"] for target in targets}

    def send(self, request: Request) -> Response:
        """Send a request and return its response without what differs between two services in any case.

        URLs lose the address of the service, and standard names get a fixed time.
        """
        response = self._send(request)
        headers = {name: value.replace(self.url, "") for name, value in response.headers.items()}
        if headers.get("last-modified") in self.standard_name_times:
            headers["last-modified"] = LONG_AGO
        return replace(response, headers=headers)

    def _send(self, request: Request) -> Response:
        sent_at = datetime.now(UTC).replace(microsecond=0)
        parts = urlsplit(self.url)
        assert parts.hostname
        connection = HTTPConnection(parts.hostname, parts.port or 80, timeout=120)
        try:
            connection.putrequest(request.method, parts.path + request.target, skip_accept_encoding=True)
            for name, value in request.headers:
                connection.putheader(name, value.encode("latin-1"))
            if request.body is not None and not request.header("content-length"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, headers, response.read(), sent_at)
        finally:
            connection.close()

    def get(self, target: str) -> Any:
        """Return the JSON body of the response to GET, None if the status is not 200."""
        response = self.send(api_request("GET", target))
        return response.json if response.status == 200 else None

    def clear(self) -> None:
        """Delete all providers, their allocations, and all custom traits and resource classes."""
        providers = self.get("/resource_providers")["resource_providers"]
        for provider in providers:
            path = f"/resource_providers/{provider['uuid']}"
            for consumer in self.get(f"{path}/allocations")["allocations"]:
                self._send_successfully(api_request("DELETE", f"/allocations/{consumer}"))
            if provider["parent_provider_uuid"]:
                body = {"name": provider["name"], "parent_provider_uuid": None}
                self._send_successfully(api_request("PUT", path, body))
        for provider in providers:
            self._send_successfully(api_request("DELETE", f"/resource_providers/{provider['uuid']}"))
        for trait in self.get("/traits?name=startswith:CUSTOM_")["traits"]:
            self._send_successfully(api_request("DELETE", f"/traits/{trait}"))
        for name in (item["name"] for item in self.get("/resource_classes")["resource_classes"]):
            if name.startswith("CUSTOM_"):
                self._send_successfully(api_request("DELETE", f"/resource_classes/{name}"))

    def _send_successfully(self, request: Request) -> None:
        response = self.send(request)
        assert response.status < 300, (str(request), str(response))


HEADERS = (
    *("openstack-api-version", "vary", "cache-control", "location", "content-type", "allow"),
    *("www-authenticate", "retry-after"),
)
"""Headers whose values must be equal."""

MAX_DELAY = timedelta(seconds=5)
"""The longest time between the same change in one service and in the other."""

UNORDERED_KEYS = {
    "resource_providers",
    "traits",
    "resource_classes",
    "allocation_requests",
    "allocations",
    "aggregates",
}
"""Keys of response bodies whose lists have no defined order."""


def comparable(value: Any, key: str = "") -> Any:
    """Return a JSON value with lists of undefined order sorted."""
    if isinstance(value, dict):
        return {name: comparable(member, name) for name, member in value.items()}
    if isinstance(value, list):
        members = [comparable(member) for member in value]
        are_strings = all(isinstance(member, str) for member in members)
        return sorted(members, key=sort_key) if key in UNORDERED_KEYS or are_strings else members
    return value


def sort_key(value: Any) -> str:
    """Return a string by which JSON values can be sorted; it does not depend on the order of their keys."""
    return json.dumps(value, sort_keys=True)


def _comparable_body(request: Request, response: Response) -> Any:
    """Return the body of a response in a form that can be compared."""
    if response.status == 200 and "limit=" in request.query:
        # A service may return any candidates within the limit (`docs/spec/candidates.md 5`).
        return len(response.json["allocation_requests"])
    return response.body if response.json is None else comparable(response.json)


def differences(request: Request, reference: Response, ours: Response) -> dict[str, Pair]:
    """Return the values of each aspect in which two responses to a request differ."""
    aspects: dict[str, Pair] = {"status": (reference.status, ours.status)}
    for name in HEADERS:
        aspects[name] = (reference.headers.get(name), ours.headers.get(name))
    if not _have_equal_times(reference, ours):
        aspects["last-modified"] = (reference.modified, ours.modified)
    aspects["request id"] = (True, "x-openstack-request-id" in ours.headers)
    if reference.status >= 400:
        aspects |= _error_differences(reference, ours)
    else:
        aspects["body"] = (_comparable_body(request, reference), _comparable_body(request, ours))
    return {aspect: pair for aspect, pair in aspects.items() if pair[0] != pair[1]}


def _have_equal_times(reference: Response, ours: Response) -> bool:
    """Return whether both were modified by this request, by the same earlier request, or never."""
    if reference.modified is None or ours.modified is None:
        return reference.modified is ours.modified
    are_new = all(response.modified >= response.sent_at for response in (reference, ours))
    return are_new or abs(reference.modified - ours.modified) <= MAX_DELAY


def _error_differences(reference: Response, ours: Response) -> Iterator[tuple[str, Pair]]:
    for key in ("status", "title", "code", "max_version", "min_version"):
        yield f"error {key}", (reference.error.get(key), ours.error.get(key))
    yield "error members", (sorted(reference.error), sorted(ours.error))
    if reference.error and ours.error:
        yield "specified", (True, bool(fixed_fragments(reference.detail)) or reference.status >= 500)
        if reference.status == ours.status:
            yield "first sentence", (first_sentence(reference.detail), first_sentence(ours.detail))
        yield "detail", (fixed_fragments(reference.detail), fixed_fragments(ours.detail))
