"""This service within the benchmark process: SQL statement counts, and times without HTTP."""

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

from bench.services import VERSION, headers
from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.server.serve import COLLECT_EVERY

REPETITIONS = 25

# Trait ids as text: psycopg2 parses arrays slowly, and few of them differ.
FLOOR_PROVIDERS = """
    SELECT id, uuid, parent_id, root_id, trait_ids::text FROM resource_providers WHERE root_id = ANY (%s)
"""
FLOOR_INVENTORIES = """
    SELECT provider_id, resource_class_id, capacity, used FROM inventories WHERE root_id = ANY (%s)
"""


@dataclass(frozen=True)
class Floor:
    """A lower bound for the time of a request, and its time without HTTP, in ms.

    `lower_bound` is the time to fetch the rows of the providers and inventories of the response with psycopg2
    alone and to serialize the response; `in_process` is the time of the whole request without HTTP.
    """

    lower_bound: float
    in_process: float


class InProcessService:
    """The application on a database, called without HTTP."""

    def __init__(self, app: Flask) -> None:
        self._client = app.test_client()
        self._engine: Engine = app.extensions["database"].engine

    def statements(self, path: str, version: str = VERSION) -> int:
        """Return the number of SQL statements of GET `path`, without BEGIN and COMMIT."""
        statements: list[str] = []

        def count(_: Any, __: Any, statement: str, *___: Any) -> None:
            statements.append(statement)

        event.listen(self._engine, "before_cursor_execute", count)
        try:
            self._get(path, version)
        finally:
            event.remove(self._engine, "before_cursor_execute", count)
        return len(statements)

    def floor(self, path: str) -> Floor:
        """Measure the floor of GET `path`, a request for candidates."""
        body = json.loads(self._get(path))
        roots = list({summary["root_provider_uuid"] for summary in body["provider_summaries"].values()})
        root_ids = self._ids(roots)
        _, arguments = self._engine.dialect.create_connect_args(self._engine.url)
        connection = psycopg2.connect(**arguments)
        try:
            with connection.cursor() as cursor:
                return Floor(
                    *_medians(
                        lambda: _fetch_and_serialize(cursor, root_ids, body), lambda: self._consume(path)
                    )
                )
        finally:
            connection.close()

    def _ids(self, uuids: list[str]) -> list[int]:
        query = text("SELECT id FROM resource_providers WHERE uuid = ANY (:uuids)")
        with self._engine.connect() as connection:
            return list(connection.scalars(query, {"uuids": uuids}))

    def _get(self, path: str, version: str = VERSION) -> bytes:
        response = self._client.get(path, headers=headers(version))
        content: bytes = response.data
        if response.status_code != 200:
            raise RuntimeError(f"GET {path} returned {response.status}: {content[:300]!r}")
        return content

    def _consume(self, path: str) -> None:
        """Iterate over the body of the response to GET `path`, as a server does that streams it."""
        with closing(self._client.get(path, headers=headers())) as response:
            for _ in response.iter_encoded():
                pass


def _fetch_and_serialize(cursor: Any, root_ids: list[int], body: Any) -> None:
    for query in (FLOOR_PROVIDERS, FLOOR_INVENTORIES):
        cursor.execute(query, [root_ids])
        cursor.fetchall()
    orjson.dumps(body)


def _medians(*functions: Callable[[], object]) -> list[float]:
    """Return the median time of each function in ms; calls alternate, and the first calls are not counted."""
    all_times: list[list[float]] = [[] for _ in functions]
    for _ in range(1 + REPETITIONS):
        for function, times in zip(functions, all_times, strict=True):
            started = time.perf_counter()
            function()
            times.append(time.perf_counter() - started)
    return [statistics.median(times[1:]) * 1000 for times in all_times]


@contextmanager
def in_process_service(database_url: str) -> Iterator[InProcessService]:
    """Yield this service on the database at `database_url`."""
    app = create_app(Settings(database_url=database_url))
    # A worker does the same: objects that exist at startup are exempt from garbage collection.
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)
    try:
        yield InProcessService(app)
    finally:
        app.extensions["database"].engine.dispose()
