"""This service in the process of the benchmark: what HTTP does not show."""

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg2  # type: ignore[import-untyped]
from flask import Flask
from sqlalchemy import Engine, event, text

from bench.services import headers
from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.server.serve import COLLECT_EVERY

TIMES = 25

# The traits as text: psycopg2 takes long to make lists of them, and few differ.
FLOOR_PROVIDERS = """
    SELECT id, uuid, parent_id, root_id, trait_ids::text FROM resource_providers WHERE root_id = ANY (%s)
"""
FLOOR_INVENTORIES = """
    SELECT provider_id, resource_class_id, capacity, used FROM inventories WHERE root_id = ANY (%s)
"""


@dataclass(frozen=True)
class Floor:
    """What an answer costs at the very least, in ms.

    `floor` is the time to fetch the rows of its providers and inventories with bare psycopg2 and to write
    its JSON; `inside` is the time of the whole request without HTTP.
    """

    floor: float
    inside: float


class Inside:
    """The application on a database, asked without HTTP."""

    def __init__(self, app: Flask) -> None:
        self._client = app.test_client()
        self._engine: Engine = app.extensions["database"].engine

    def statements(self, path: str) -> int:
        """Return how many SQL statements GET `path` takes, beside those that begin and end a transaction."""
        sent: list[str] = []

        def count(_: Any, __: Any, statement: str, *___: Any) -> None:
            sent.append(statement)

        event.listen(self._engine, "before_cursor_execute", count)
        try:
            self._get(path)
        finally:
            event.remove(self._engine, "before_cursor_execute", count)
        return len(sent)

    def floor(self, path: str) -> Floor:
        """Measure the floor of GET `path`, a request for candidates."""
        body = json.loads(self._get(path))
        roots = list({summary["root_provider_uuid"] for summary in body["provider_summaries"].values()})
        root_ids = self._ids(roots)
        _, arguments = self._engine.dialect.create_connect_args(self._engine.url)
        connection = psycopg2.connect(**arguments)
        try:
            with connection.cursor() as cursor:
                return Floor(*_medians(lambda: _fetch(cursor, root_ids, body), lambda: self._work_at(path)))
        finally:
            connection.close()

    def _ids(self, uuids: list[str]) -> list[int]:
        query = text("SELECT id FROM resource_providers WHERE uuid = ANY (:uuids)")
        with self._engine.connect() as connection:
            return list(connection.scalars(query, {"uuids": uuids}))

    def _get(self, path: str) -> bytes:
        answer = self._client.get(path, headers=headers())
        content: bytes = answer.data
        if answer.status_code != 200:
            raise RuntimeError(f"GET {path} answers {answer.status}: {content[:300]!r}")
        return content

    def _work_at(self, path: str) -> None:
        """Make the answer to GET `path`, piece by piece, as a server that sends each asks for them."""
        with closing(self._client.get(path, headers=headers())) as answer:
            for _ in answer.iter_encoded():
                pass


def _fetch(cursor: Any, root_ids: list[int], body: Any) -> None:
    for query in (FLOOR_PROVIDERS, FLOOR_INVENTORIES):
        cursor.execute(query, [root_ids])
        cursor.fetchall()
    orjson.dumps(body)


def _medians(*acts: Callable[[], object]) -> list[float]:
    """Return the median time of each act in ms, done in turn; the first time is not counted."""
    taken: list[list[float]] = [[] for _ in acts]
    for _ in range(1 + TIMES):
        for act, times in zip(acts, taken, strict=True):
            started = time.perf_counter()
            act()
            times.append(time.perf_counter() - started)
    return [statistics.median(times[1:]) * 1000 for times in taken]


@contextmanager
def inside(database_url: str) -> Iterator[Inside]:
    """Give this service on the database of `database_url`."""
    app = create_app(Settings(database_url=database_url))
    # As in a worker: what is there already is not looked at again and again.
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)
    try:
        yield Inside(app)
    finally:
        app.extensions["database"].engine.dispose()
