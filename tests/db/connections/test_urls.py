"""The forms of a database URL, and the connection options that it implies."""

import pytest

from placement_svc.db.connections.urls import (
    default_options,
    each_host,
    host_count,
    parse_url,
    redact_url,
    server_name,
)


@pytest.mark.parametrize(
    ("url", "hosts", "ports"),
    [
        ("postgresql://me:pw@a:5432,b:5433/placement", "a,b", "5432,5433"),
        ("postgresql://a,b:5433,c/placement", "a,b,c", "5432,5433,5432"),
        ("postgresql+psycopg2://me@[::1]:5433,[fe80::1]/placement", "::1,fe80::1", "5433,5432"),
        ("postgresql:///placement?host=a,b&port=1,2", "a,b", "1,2"),
    ],
)
def test_several_hosts(url: str, hosts: str, ports: str) -> None:
    parsed = parse_url(url)
    assert parsed.database == "placement"
    assert (parsed.query["host"], parsed.query["port"]) == (hosts, ports)
    assert host_count(parsed) == hosts.count(",") + 1


def test_options_and_credentials_of_several_hosts_are_kept() -> None:
    parsed = parse_url("postgresql://me:p%40w@a,b/placement?sslmode=require&connect_timeout=9")
    assert (parsed.username, parsed.password) == ("me", "p@w")
    assert (parsed.query["sslmode"], parsed.query["connect_timeout"]) == ("require", "9")


@pytest.mark.parametrize("url", ["postgresql://host/placement", "postgresql:///placement?host=/run/db"])
def test_one_host_implies_no_failover(url: str) -> None:
    assert "target_session_attrs" not in default_options(parse_url(url))


def test_several_hosts_imply_the_primary_and_short_timeouts() -> None:
    options = default_options(parse_url("postgresql://a,b/placement?tcp_user_timeout=9000"))
    assert options["target_session_attrs"] == "read-write"
    assert options["connect_timeout"] == 2
    assert "tcp_user_timeout" not in options


def test_password_of_several_hosts_is_not_shown() -> None:
    assert "secret" not in redact_url("postgresql://me:secret@a:1,b:2/placement")


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("postgresql://me:pw@a:5432,b:5433/placement", ["a:5432", "b:5433"]),
        ("postgresql://me@a/placement", ["a:5432"]),
        ("postgresql://me@/placement?host=a:1&host=b:2", ["a:1", "b:2"]),
        ("postgresql:///placement?host=/run/a,/run/b", ["/run/a:5432", "/run/b:5432"]),
        ("postgresql:///placement", ["localhost:5432"]),
    ],
)
def test_each_host_has_a_url_of_its_own(url: str, names: list[str]) -> None:
    urls = each_host(url)
    assert [server_name(each) for each in urls] == names
    for each in urls:
        assert host_count(each) == 1
        assert each.password == parse_url(url).password
        assert each.query["connect_timeout"] == "2"
        assert "target_session_attrs" not in each.query


def test_options_of_the_url_count_for_each_host() -> None:
    [first, second] = each_host("postgresql://a,b/placement?sslmode=require&connect_timeout=9")
    assert first.query["sslmode"] == second.query["sslmode"] == "require"
    assert first.query["connect_timeout"] == "9"
