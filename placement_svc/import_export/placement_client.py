"""A client that reads another Placement service over its HTTP API.

The other service can be OpenStack Placement. It must offer a microversion up to `NEWEST`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

import microversion_parse
import orjson
from rich.progress import Progress

from placement_svc.client.service_client import ClientError, ServiceClient
from placement_svc.config import NOBODY
from placement_svc.domain.allocations import UNKNOWN_TYPE, Claim
from placement_svc.domain.records import (
    PlacementGroupRecord,
    ProviderRecord,
    Record,
    RecordCounts,
    ResourceClassRecord,
    TraitRecord,
)
from placement_svc.domain.version_header import EXTENSION_VERSIONS, EXTENSIONS
from placement_svc.http.microversion import NEWEST
from placement_svc.schemas.records import to_line

THREADS = 8
"""Requests that are sent at the same time."""

BATCH_SIZE = 200
"""Providers or consumers that are requested before the first of their records is returned."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _ProviderSummary:
    """A resource provider in the provider list of the other service."""

    uuid: str
    name: str
    parent_uuid: str | None
    generation: int


class PlacementClient(ServiceClient):
    """A client of a running Placement service, at the newest microversion that both services support."""

    def __init__(self, url: str, token: str) -> None:
        """Negotiate the microversion and check that the service accepts the token; raises `ClientError`."""
        super().__init__(url, token, connections=THREADS)
        # The other service may be older and support only the oldest version of the extensions.
        self.select_version(f"latest, {EXTENSIONS} {EXTENSION_VERSIONS[0]}")
        versions = self.get("/")
        self._version = self._negotiate_version(versions)
        self._has_placement_groups = EXTENSIONS in versions
        self.select_version(str(self._version))
        # The list of microversions needs no token.
        self.get(f"/resource_providers?uuid={NOBODY}")

    def _negotiate_version(self, versions: Any) -> microversion_parse.Version:
        try:
            [offered] = versions["versions"]
            oldest, newest = (_parse_version(offered[key]) for key in ("min_version", "max_version"))
        except (KeyError, TypeError, ValueError):
            raise ClientError(
                f"{self.url} does not list its microversions: is it a Placement service?"
            ) from None
        version = min(newest, _parse_version(NEWEST))
        if version < oldest:
            raise ClientError(
                f"{self.url} supports microversions from {oldest} on, but this service only up to {NEWEST}"
            )
        return version

    def _supports(self, version: str) -> bool:
        return bool(self._version >= _parse_version(version))

    def export_lines(self, progress: Progress) -> Iterator[bytes]:
        """Yield all data of the service as the lines of an export; `progress` shows how much has been read.

        Raises `ClientError` if a request fails, if a response is not one of Placement, or if the data changed
        during the read: the lines would then mix two states. A change is detected by two comparisons: the
        provider list before and after, and the allocations of each provider with those of its consumers.
        """
        try:
            yield from self._export_lines(progress)
        except (AttributeError, LookupError, TypeError):
            raise ClientError(
                f"{self.url} returned a response without the expected values: is it a Placement service?"
            ) from None

    def _export_lines(self, progress: Progress) -> Iterator[bytes]:
        numbers: Counter[type[Record]] = Counter()
        for line, record_class in self._custom_names():
            yield line
            numbers[record_class] += 1
        providers = self._list_providers()
        # Allocated amounts by provider uuid: from the allocations of the provider, and from its consumers.
        by_provider: Counter[str] = Counter()
        by_consumers: Counter[str] = Counter()
        consumers: dict[str, None] = {}
        provider_records = _map_in_batches(self._read_provider, providers)
        for provider, (record, allocations) in progress.track(
            provider_records, total=len(providers), description="Reading resource providers"
        ):
            yield orjson.dumps({"resource_provider": record})
            consumers.update(dict.fromkeys(allocations))
            by_provider[provider.uuid] = sum(map(_total_amount, allocations.values()))
        consumer_records = _map_in_batches(self._read_consumer, list(consumers))
        for _, record in progress.track(
            consumer_records, total=len(consumers), description="Reading consumers"
        ):
            if record["allocations"]:
                yield orjson.dumps({"consumer": record})
                numbers[Claim] += 1
            by_consumers.update(
                {uuid: _total_amount(allocation) for uuid, allocation in record["allocations"].items()}
            )
        groups = self._list_placement_groups()
        group_records = _map_in_batches(self._read_placement_group, groups)
        for _, record in progress.track(
            group_records, total=len(groups), description="Reading placement groups"
        ):
            yield orjson.dumps({"placement_group": record})
        changed = set(self._list_providers()) ^ set(providers)
        if changed or +by_provider != +by_consumers:
            uuids = {provider.uuid for provider in changed}
            uuids |= {uuid for uuid in by_provider | by_consumers if by_provider[uuid] != by_consumers[uuid]}
            raise ClientError(
                f"{self.url} changed during the import ({', '.join(sorted(uuids)[:3])}...):"
                " stop the services that write to it, and import again"
            )
        numbers[ProviderRecord] = len(providers)
        numbers[PlacementGroupRecord] = len(groups)
        yield to_line(RecordCounts.of(numbers))

    def _custom_names(self) -> Iterator[tuple[bytes, type[Record]]]:
        """Yield the lines of custom traits and resource classes, each with the class of its record."""
        if self._supports("1.6"):
            for name in self.get("/traits?name=startswith:CUSTOM_")["traits"]:
                if name.startswith("CUSTOM_"):
                    yield orjson.dumps({"trait": name}), TraitRecord
        if self._supports("1.2"):
            for resource_class in self.get("/resource_classes")["resource_classes"]:
                if resource_class["name"].startswith("CUSTOM_"):
                    yield orjson.dumps({"resource_class": resource_class["name"]}), ResourceClassRecord

    def _list_providers(self) -> list[_ProviderSummary]:
        return [
            _ProviderSummary(
                uuid=provider["uuid"],
                name=provider["name"],
                parent_uuid=provider.get("parent_provider_uuid"),
                generation=provider["generation"],
            )
            for provider in self.get("/resource_providers")["resource_providers"]
        ]

    def _read_provider(self, provider: _ProviderSummary) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return the record of a provider, and its allocations by consumer uuid."""
        path = f"/resource_providers/{provider.uuid}"
        inventories = self.get(f"{path}/inventories")["inventories"]
        record = {
            "uuid": provider.uuid,
            "name": provider.name,
            "parent_provider_uuid": provider.parent_uuid,
            "traits": self.get(f"{path}/traits")["traits"] if self._supports("1.6") else [],
            "aggregates": self.get(f"{path}/aggregates")["aggregates"] if self._supports("1.1") else [],
            "inventories": inventories,
        }
        return record, self.get(f"{path}/allocations")["allocations"] if inventories else {}

    def _read_consumer(self, uuid: str) -> dict[str, Any]:
        """Return the record of a consumer; a deleted consumer has no allocations."""
        body = self.get(f"/allocations/{uuid}")
        consumer_type = body.get("consumer_type")
        return {
            "uuid": uuid,
            "project_id": body.get("project_id", NOBODY),
            "user_id": body.get("user_id", NOBODY),
            "consumer_type": None if consumer_type == UNKNOWN_TYPE else consumer_type,
            "allocations": body["allocations"],
        }

    def _list_placement_groups(self) -> list[str]:
        """Return the uuids of all placement groups."""
        if not self._has_placement_groups:
            return []
        return [group["uuid"] for group in self.get("/placement_groups")["placement_groups"]]

    def _read_placement_group(self, uuid: str) -> dict[str, Any]:
        """Return the record of a placement group."""
        group = self.get(f"/placement_groups/{uuid}")
        keys = ("uuid", "policy", "max_per_domain", "across")
        record = {key: group[key] for key in keys if group[key] is not None}
        return record | {"members": [member["consumer_uuid"] for member in group["members"]]}


def _parse_version(text: str) -> microversion_parse.Version:
    return microversion_parse.parse_version_string(text)


def _total_amount(allocation: Mapping[str, Any]) -> int:
    """Return the sum of the amounts of all resource classes of an allocation."""
    return sum(allocation["resources"].values())


def _map_in_batches(
    function: Callable[[Item], Result], items: Sequence[Item]
) -> Iterable[tuple[Item, Result]]:
    """Yield each item with its result, in order; results are computed one batch at a time, in threads."""
    for start in range(0, len(items), BATCH_SIZE):
        batch = items[start : start + BATCH_SIZE]
        yield from zip(batch, _map(function, batch), strict=True)


def _map(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterable[Result]:
    """Yield the results of `function` for `items`, in order, from `THREADS` threads.

    No thread delays the end of the process, unlike those of an executor: a request may take minutes.
    """
    results = [(item, Future[Result]()) for item in items]
    waiting = deque(results)

    def run() -> None:
        with suppress(IndexError):
            while True:
                item, result = waiting.popleft()
                try:
                    result.set_result(function(item))
                except Exception as error:
                    result.set_exception(error)

    for _ in range(THREADS):
        Thread(target=run, daemon=True).start()
    try:
        for _, result in results:
            yield result.result()
    finally:
        waiting.clear()
