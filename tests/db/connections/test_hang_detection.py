"""The connections that the watchdog of hanging servers knows."""

import gc
from collections.abc import Callable
from typing import Any

import psycopg2  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url, text

from placement_svc.db.connections.engine import connect
from placement_svc.db.connections.sessions import count_others
from tests.support.service import wait_until


def test_connections_of_an_abandoned_pool_are_closed(database_url: str) -> None:
    url = make_url(database_url).update_query_dict({"application_name": "abandoned"})
    engine = connect(url.render_as_string(hide_password=False))
    other = connect(database_url)
    count = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'abandoned'")
    with engine.connect() as first, engine.connect() as second:
        assert first.scalar(count) == second.scalar(count) == 2

    # The pool is replaced, and does not close the connections that are in use.
    engine.dispose(close=False)

    def are_closed() -> bool:
        # A collection does nothing if it begins while another thread has one under way.
        gc.collect()
        # A transaction sees the sessions as they were when it first asked for them.
        with other.connect() as connection:
            return connection.scalar(count) == 0

    wait_until(are_closed)
    other.dispose()


def test_a_probe_does_not_count_as_a_session_of_a_service(
    new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    service, command = connect(url), connect(url)
    counts: list[int] = []
    connect_driver = psycopg2.connect

    def probe(*arguments: Any, **options: Any) -> Any:
        connection = connect_driver(*arguments, **options)
        counts.append(count_others(command))
        return connection

    with service.connect():
        command.connect().close()
        monkeypatch.setattr(psycopg2, "connect", probe)
        wait_until(lambda: counts)

    assert counts[0] == 1
    service.dispose()
    command.dispose()
