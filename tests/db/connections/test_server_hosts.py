"""Several hosts, some of which close connections, do not respond, or are avoided."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import psycopg2  # type: ignore[import-untyped]
import pytest
from sqlalchemy import create_engine, make_url, text

from placement_svc.db.connections import server_hosts
from placement_svc.db.connections.engine import connect
from placement_svc.db.connections.server_hosts import Server, ServerHosts
from tests.support.postgres_proxy import PostgresProxy
from tests.support.service import wait_until

SLOW_TIMEOUT = 60
"""Seconds of `connect_timeout` that no test waits for."""


class Listener:
    """Accepts connections on a port of loopback; closes each at once, or never responds."""

    def __init__(self, *, closes: bool) -> None:
        self._closes = closes
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.server = Server("127.0.0.1", str(self._socket.getsockname()[1]))
        self.accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.accepted.append(connection)
                if self._closes:
                    connection.close()

    def close(self) -> None:
        """Refuse connections from now on, and close those that are open."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self.accepted:
            connection.close()


@pytest.fixture
def closing_host() -> Iterator[Listener]:
    """A host that closes every connection, as a proxy whose server is down."""
    with closing(Listener(closes=True)) as listener:
        yield listener


@pytest.fixture
def silent_host() -> Iterator[Listener]:
    """A host that accepts connections and never responds, as a frozen server."""
    with closing(Listener(closes=False)) as listener:
        yield listener


@pytest.fixture
def primary(postgres_proxy: PostgresProxy) -> Server:
    """The host of a database that accepts writes."""
    return Server("127.0.0.1", str(make_url(postgres_proxy.url).port))


def test_server_without_a_port_has_that_of_postgresql() -> None:
    servers = server_hosts._servers({"host": "db1,db2", "port": ","})
    assert servers == [Server("db1", "5432"), Server("db2", "5432")]


def arguments(url: str, *servers: Server, **options: Any) -> dict[str, Any]:
    """Return the arguments of a connection to the database of a URL on several servers."""
    parsed = make_url(url)
    return {
        "host": ",".join(server.host for server in servers),
        "port": ",".join(server.port for server in servers),
        "dbname": parsed.database,
        "user": parsed.username,
        "password": parsed.password,
        "sslmode": "disable",
        "target_session_attrs": "read-write",
        **options,
    }


def port(hosts: ServerHosts, arguments: dict[str, Any]) -> str:
    """Connect, and return the port of the server."""
    with closing(hosts.connect(arguments)) as connection:
        return str(connection.info.port)


def test_the_next_host_is_tried_after_one_that_closes_the_connection(
    postgres_proxy: PostgresProxy, closing_host: Listener, primary: Server
) -> None:
    url = make_url(postgres_proxy.url).set(host=None, port=None)
    query = {
        "host": f"127.0.0.1,{primary.host}",
        "port": f"{closing_host.server.port},{primary.port}",
        "connect_timeout": str(SLOW_TIMEOUT),
    }
    engine = connect(url.update_query_dict(query))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    assert len(closing_host.accepted) > 0
    engine.dispose()


def test_the_error_has_the_messages_of_all_hosts(postgres_proxy: PostgresProxy) -> None:
    with (
        closing(Listener(closes=True)) as first,
        closing(Listener(closes=True)) as second,
        pytest.raises(psycopg2.OperationalError) as caught,
    ):
        ServerHosts().connect(arguments(postgres_proxy.url, first.server, second.server))
    assert all(f"port {each.server.port} failed" in str(caught.value) for each in (first, second))


def test_a_host_that_does_not_respond_is_avoided(
    postgres_proxy: PostgresProxy, silent_host: Listener, closing_host: Listener
) -> None:
    hosts = ServerHosts()
    both = arguments(postgres_proxy.url, silent_host.server, closing_host.server, connect_timeout=2)
    with pytest.raises(psycopg2.OperationalError, match="timeout expired"):
        hosts.connect(both)
    with pytest.raises(psycopg2.OperationalError, match="has not responded"):
        hosts.connect(both)


def test_a_host_is_avoided_if_the_clock_of_libpq_is_faster(
    postgres_proxy: PostgresProxy,
    silent_host: Listener,
    closing_host: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_hosts, "monotonic", lambda: 0.9 * time.monotonic())
    hosts = ServerHosts()
    both = arguments(postgres_proxy.url, silent_host.server, closing_host.server, connect_timeout=2)
    for message in ("timeout expired", "has not responded"):
        with pytest.raises(psycopg2.OperationalError, match=message):
            hosts.connect(both)


def test_no_request_waits_for_a_host_that_is_avoided(
    postgres_proxy: PostgresProxy, silent_host: Listener, closing_host: Listener
) -> None:
    hosts = ServerHosts()
    hosts.avoid(silent_host.server)
    both = arguments(
        postgres_proxy.url, silent_host.server, closing_host.server, connect_timeout=SLOW_TIMEOUT
    )
    for _ in range(3):
        with pytest.raises(psycopg2.OperationalError, match="has not responded"):
            hosts.connect(both)
    # One thread examines it, whose connection is still open.
    wait_until(lambda: len(silent_host.accepted) == 1)


def test_an_avoided_host_that_responds_is_used_again(
    postgres_proxy: PostgresProxy, closing_host: Listener, primary: Server
) -> None:
    hosts = ServerHosts()
    both = arguments(postgres_proxy.url, closing_host.server, primary)
    hosts.avoid(primary)
    with pytest.raises(psycopg2.OperationalError):
        hosts.connect(both)

    def connects() -> bool:
        with suppress(psycopg2.OperationalError):
            return port(hosts, both) == primary.port
        return False

    wait_until(connects)


def test_a_standby_is_preferred_to_a_primary_and_a_primary_to_none(
    postgres_proxy: PostgresProxy, closing_host: Listener, primary: Server
) -> None:
    both = arguments(postgres_proxy.url, primary, closing_host.server, target_session_attrs="prefer-standby")
    assert port(ServerHosts(), both) == primary.port
    assert len(closing_host.accepted) == 1


def test_a_single_host_is_left_to_libpq(postgres_proxy: PostgresProxy, primary: Server) -> None:
    assert ServerHosts().connect(arguments(postgres_proxy.url, primary)) is None


def test_requests_share_attempts_while_no_host_is_usable(
    postgres_proxy: PostgresProxy, closing_host: Listener, primary: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_hosts, "RETRY_INTERVAL", SLOW_TIMEOUT)
    hosts = ServerHosts()
    only_closing = arguments(postgres_proxy.url, closing_host.server, closing_host.server)
    for _ in range(3):
        with pytest.raises(psycopg2.OperationalError, match=f"port {closing_host.server.port} failed"):
            hosts.connect(only_closing)
    assert len(closing_host.accepted) == 2


def test_requests_do_not_share_attempts_while_a_host_is_usable(
    postgres_proxy: PostgresProxy, closing_host: Listener, primary: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_hosts, "RETRY_INTERVAL", SLOW_TIMEOUT)
    hosts = ServerHosts()
    both = arguments(postgres_proxy.url, closing_host.server, primary)
    assert [port(hosts, both) for _ in range(3)] == [primary.port] * 3


def set_read_only(url: str, value: str) -> None:
    """Let new sessions in a database refuse writes, as a standby does, or accept them."""
    engine = create_engine(
        url, isolation_level="AUTOCOMMIT", connect_args={"options": "-c default_transaction_read_only=off"}
    )
    with engine.connect() as connection:
        database = make_url(url).database
        connection.execute(text(f"ALTER DATABASE {database} SET default_transaction_read_only = {value}"))
    engine.dispose()


@pytest.fixture
def both(
    postgres_proxy: PostgresProxy, closing_host: Listener, primary: Server, database_url: str
) -> Iterator[dict[str, Any]]:
    """The arguments of a connection to a host that closes connections, and to the primary."""
    yield arguments(postgres_proxy.url, closing_host.server, primary)
    set_read_only(database_url, "off")


def test_a_connection_waits_for_the_next_primary(
    both: dict[str, Any], closing_host: Listener, primary: Server, database_url: str
) -> None:
    hosts = ServerHosts()
    assert port(hosts, both) == primary.port
    set_read_only(database_url, "on")
    tried = len(closing_host.accepted)
    with ThreadPoolExecutor(1) as threads:
        connected = threads.submit(port, hosts, both)
        wait_until(lambda: len(closing_host.accepted) > tried + 1)
        set_read_only(database_url, "off")
        assert connected.result() == primary.port


@pytest.mark.parametrize(
    "has_connected", [False, True], ids=["at the start", "after the time of a switchover"]
)
def test_a_connection_fails_at_once(
    both: dict[str, Any],
    closing_host: Listener,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    has_connected: bool,
) -> None:
    hosts = ServerHosts()
    if has_connected:
        monkeypatch.setattr(server_hosts, "FAILOVER_SECONDS", 0.0)
        port(hosts, both)
    set_read_only(database_url, "on")
    tried = len(closing_host.accepted)
    with pytest.raises(psycopg2.OperationalError, match="read-only"):
        hosts.connect(both)
    assert len(closing_host.accepted) == tried + 1


def test_a_connection_waits_in_the_second_outage_too(
    both: dict[str, Any],
    closing_host: Listener,
    primary: Server,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(server_hosts, "monotonic", lambda: now[0])
    monkeypatch.setattr(server_hosts, "RETRY_INTERVAL", 0.0)
    hosts = ServerHosts()
    port(hosts, both)
    set_read_only(database_url, "on")
    with monkeypatch.context() as patch:
        patch.setattr(server_hosts, "FAILOVER_SECONDS", 0.0)
        with pytest.raises(psycopg2.OperationalError, match="read-only"):
            hosts.connect(both)
    for _ in range(3):
        now[0] += server_hosts.OUTAGE_SECONDS
        with pytest.raises(psycopg2.OperationalError, match="read-only"):
            hosts.connect(both)
    now[0] += server_hosts.OUTAGE_SECONDS + 1
    tried = len(closing_host.accepted)
    with ThreadPoolExecutor(1) as threads:
        connected = threads.submit(port, hosts, both)
        wait_until(lambda: len(closing_host.accepted) > tried + 1 or connected.done())
        set_read_only(database_url, "off")
        assert connected.result() == primary.port
