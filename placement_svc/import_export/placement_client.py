"""Another Placement service as a source of records: what it has, read over its HTTP API.

OpenStack Placement is one such service; any microversion up to `NEWEST` will do.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import microversion_parse
import orjson
import urllib3
from rich.progress import Progress

from placement_svc.config import NOBODY
from placement_svc.domain.allocations import UNKNOWN_TYPE
from placement_svc.http.microversion import NEWEST

THREADS = 8
AT_ONCE = 200
"""How many providers or consumers are asked for before the first of them is dealt with."""

T = TypeVar("T")
Found = TypeVar("Found")


class SourceError(Exception):
    """The source cannot be read, or not as one whole; the message says why."""


@dataclass(frozen=True)
class _Provider:
    """A resource provider as the source lists it."""

    uuid: str
    name: str
    parent_uuid: str | None
    generation: int


class Source:
    """A running Placement service, spoken to with a token at the newest microversion that both know."""

    def __init__(self, url: str, token: str) -> None:
        """Find out which microversion to speak; raises `SourceError`."""
        if not url.startswith(("http://", "https://")):
            raise SourceError(f"{url} is not the URL of a service, which begins with http:// or https://")
        self._url = url.rstrip("/")
        # Reading can be repeated: what a proxy or a restart in between has spoiled is asked for again.
        retry = urllib3.Retry(
            connect=1, read=4, status=4, backoff_factor=0.5, status_forcelist=(502, 503, 504)
        )
        self._http = urllib3.PoolManager(
            maxsize=THREADS, block=True, retries=retry, timeout=urllib3.Timeout(connect=10, read=600)
        )
        self._headers = {"X-Auth-Token": token, "Accept": "application/json"}
        self._version = self._negotiated()
        self._headers["OpenStack-API-Version"] = f"placement {self._version}"

    def _negotiated(self) -> microversion_parse.Version:
        try:
            [offered] = self._ask("/")["versions"]
            least, most = (_version(offered[key]) for key in ("min_version", "max_version"))
        except (KeyError, TypeError, ValueError):
            raise SourceError(
                f"{self._url} does not tell its microversions: is it a Placement service?"
            ) from None
        version = min(most, _version(NEWEST))
        if version < least:
            raise SourceError(
                f"{self._url} only speaks microversions from {least}, this service up to {NEWEST}"
            )
        return version

    def _since(self, version: str) -> bool:
        return bool(self._version >= _version(version))

    def _ask(self, path: str) -> Any:
        """Return what the answer to a GET says; raises `SourceError`."""
        url = f"{self._url}{path}"
        try:
            answer = self._http.request("GET", url, headers=self._headers)
            if answer.status != 200:
                raise SourceError(f"GET {url} answers {answer.status}: {_reason(answer.data)}")
            return orjson.loads(answer.data)
        except urllib3.exceptions.HTTPError as error:
            raise SourceError(f"GET {url} has no answer: {error}") from error
        except orjson.JSONDecodeError:
            raise SourceError(f"GET {url} answers with something that is not JSON") from None

    def lines(self, progress: Progress) -> Iterator[bytes]:
        """Yield all that the source has as the lines of an export, showing how far it is.

        Raises `SourceError` if the source fails, or if something changes in it meanwhile: what was
        read would be neither its old state nor its new one.
        """
        yield from self._names()
        providers = self._providers()
        granted: Counter[str] = Counter()
        held: Counter[str] = Counter()
        consumers: dict[str, None] = {}
        with ThreadPoolExecutor(THREADS) as pool:
            found = _ask_each(pool, self._provider, providers)
            for provider, (record, allocations) in progress.track(
                found, total=len(providers), description="Reading resource providers"
            ):
                yield orjson.dumps({"resource_provider": record})
                consumers.update(dict.fromkeys(allocations))
                granted[provider.uuid] = sum(map(_sum, allocations.values()))
            claims = _ask_each(pool, self._consumer, list(consumers))
            for _, record in progress.track(claims, total=len(consumers), description="Reading consumers"):
                if record["allocations"]:
                    yield orjson.dumps({"consumer": record})
                held.update({uuid: _sum(held_of) for uuid, held_of in record["allocations"].items()})
        changed = set(self._providers()) ^ set(providers)
        if changed or +granted != +held:
            uuids = {p.uuid for p in changed} | {u for u in granted | held if granted[u] != held[u]}
            raise SourceError(
                f"{self._url} has changed while it was read ({', '.join(sorted(uuids)[:3])}...):"
                " stop the services that write to it, and import again"
            )

    def _names(self) -> Iterator[bytes]:
        if self._since("1.6"):
            for name in self._ask("/traits?name=startswith:CUSTOM_")["traits"]:
                if name.startswith("CUSTOM_"):
                    yield orjson.dumps({"trait": name})
        if self._since("1.2"):
            for resource_class in self._ask("/resource_classes")["resource_classes"]:
                if resource_class["name"].startswith("CUSTOM_"):
                    yield orjson.dumps({"resource_class": resource_class["name"]})

    def _providers(self) -> list[_Provider]:
        return [
            _Provider(
                uuid=listed["uuid"],
                name=listed["name"],
                parent_uuid=listed.get("parent_provider_uuid"),
                generation=listed["generation"],
            )
            for listed in self._ask("/resource_providers")["resource_providers"]
        ]

    def _provider(self, provider: _Provider) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return the record of a provider, and what consumers hold of it."""
        path = f"/resource_providers/{provider.uuid}"
        inventories = self._ask(f"{path}/inventories")["inventories"]
        record = {
            "uuid": provider.uuid,
            "name": provider.name,
            "parent_provider_uuid": provider.parent_uuid,
            "traits": self._ask(f"{path}/traits")["traits"] if self._since("1.6") else [],
            "aggregates": self._ask(f"{path}/aggregates")["aggregates"] if self._since("1.1") else [],
            "inventories": inventories,
        }
        return record, self._ask(f"{path}/allocations")["allocations"] if inventories else {}

    def _consumer(self, uuid: str) -> dict[str, Any]:
        """Return the record of a consumer; one that is gone holds nothing."""
        answer = self._ask(f"/allocations/{uuid}")
        consumer_type = answer.get("consumer_type")
        return {
            "uuid": uuid,
            "project_id": answer.get("project_id", NOBODY),
            "user_id": answer.get("user_id", NOBODY),
            "consumer_type": None if consumer_type == UNKNOWN_TYPE else consumer_type,
            "allocations": answer["allocations"],
        }


def _version(text: str) -> microversion_parse.Version:
    return microversion_parse.parse_version_string(text)


def _reason(body: bytes) -> str:
    """Return what the body of an error says, on one line."""
    try:
        text = orjson.loads(body)["errors"][0]["detail"]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        text = body.decode(errors="replace")
    return " ".join(text.split())[:300]


def _sum(held: Mapping[str, Any]) -> int:
    return sum(held["resources"].values())


def _ask_each(
    pool: ThreadPoolExecutor, ask: Callable[[T], Found], things: Sequence[T]
) -> Iterable[tuple[T, Found]]:
    """Yield each thing with the answer about it, in their order, not reading far ahead."""
    for start in range(0, len(things), AT_ONCE):
        batch = things[start : start + AT_ONCE]
        yield from zip(batch, pool.map(ask, batch), strict=True)
