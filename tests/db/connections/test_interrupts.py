"""Statements of commands that signals interrupt."""

import socket
from collections.abc import Iterator

import pytest
from psycopg2.extensions import get_wait_callback, set_wait_callback  # type: ignore[import-untyped]
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from placement_svc.db.connections.engine import connect
from placement_svc.db.connections.interrupts import interruptible
from placement_svc.db.connections.sockets import wait


@pytest.fixture(autouse=True)
def _no_callback() -> Iterator[None]:
    """Leave the driver as it was."""
    yield
    set_wait_callback(None)


def test_the_driver_waits_as_usual_after_the_block(database_url: str) -> None:
    engine = connect(database_url)
    with interruptible(engine), engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
        assert get_wait_callback() is wait
    engine.dispose()
    assert get_wait_callback() is None


def test_connections_keep_their_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        engine = connect(f"postgresql://user@127.0.0.1:{silent.getsockname()[1]}/name?connect_timeout=2")
        with interruptible(engine):
            set_wait_callback(wait)
            with pytest.raises(OperationalError, match="timeout expired"):
                engine.connect()
