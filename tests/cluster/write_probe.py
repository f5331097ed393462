"""Clients of PostgreSQL alone, whose commits show when the cluster itself accepts writes."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import psycopg2  # type: ignore[import-untyped]

from tests.cluster.patroni_cluster import Node

INTERVAL_SECONDS = 0.05
CREATE = "CREATE TABLE IF NOT EXISTS probe AS SELECT 0 AS number"
COMMIT = "UPDATE probe SET number = number + 1"


class WriteProbe:
    """Commits to whichever node is the primary, by one connection to each node without a proxy."""

    def __init__(self, nodes: Sequence[Node], leader: Node) -> None:
        with _connection(leader) as connection, connection.cursor() as cursor:
            cursor.execute(CREATE)
        self.committed: list[float] = []
        """When commits were acknowledged, by the monotonic clock."""
        self._stopped = threading.Event()
        # A thread that waits for a frozen server does not keep the others, nor the test, from going on.
        self._threads = [threading.Thread(target=self._run, args=(node,), daemon=True) for node in nodes]

    def __enter__(self) -> "WriteProbe":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()

    def _run(self, node: Node) -> None:
        connection = None
        while not self._stopped.wait(INTERVAL_SECONDS):
            try:
                if connection is None or connection.closed:
                    connection = _connection(node)
                with connection.cursor() as cursor:
                    cursor.execute(COMMIT)
                self.committed.append(time.monotonic())
            except psycopg2.Error as error:
                # A standby refuses a write; its connection stays open, and can write after a promotion.
                if connection is not None and error.pgcode is None:
                    with suppress(psycopg2.Error):
                        connection.close()
                    connection = None


def _connection(node: Node) -> Any:
    connection = psycopg2.connect(
        host="127.0.0.1", port=node.port, user="postgres", dbname="postgres", connect_timeout=2
    )
    connection.autocommit = True
    return connection


def longest_pause(times: Sequence[float], start: float, end: float) -> tuple[float, float]:
    """Return start and end of the longest time without an event between two times."""
    moments = [start, *sorted(moment for moment in times if start < moment < end), end]
    return max(pairwise(moments), key=lambda pause: pause[1] - pause[0])
