"""Statements are cached once they are repeated, so that requests that differ leave nothing behind."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, literal_column, select

from placement_svc.db import repeated
from placement_svc.db.repeated import RecentKeys, RecentValues, RepeatedCache
from placement_svc.db.search import anchor_statement
from tests.conftest import Api, LoadCloud
from tests.support.cloud import read


def test_result_is_kept_once_its_arguments_are_repeated() -> None:
    calls: list[tuple[int, bool]] = []

    def double(number: int, *, is_logged: bool) -> int:
        calls.append((number, is_logged))
        return 2 * number

    cache = RepeatedCache(double, 10)
    for number, is_logged in ((1, True), (1, False), (2, True)):
        assert cache(number, is_logged=is_logged) == 2 * number
    assert cache.cache_info().currsize == 0
    assert [cache(1, is_logged=True) for _ in range(3)] == [2] * 3
    assert calls == [(1, True), (1, False), (2, True), (1, True)]
    cache.cache_clear()
    cache(1, is_logged=True)
    assert cache.cache_info().currsize == 0


def test_keys_are_forgotten_after_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "REMEMBERED", 2)
    recent = RecentKeys()
    assert [recent.is_repeated(key) for key in "abacaba"] == [False, False, True, False, True, False, True]


def test_threads_share_the_keys() -> None:
    recent = RecentKeys()
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda number: recent.is_repeated(number % 100), range(4000)))
    assert answers.count(False) == 100


def test_requests_that_differ_leave_no_cached_statement(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{VCPU8 MEMORY_MB64}"))
    cache = anchor_statement._cached_statement
    cache.cache_clear()

    def send(amount: int) -> int:
        query = f"resources=VCPU:1&resources_A=MEMORY_MB:{amount}&group_policy=none"
        assert api("GET", f"/allocation_candidates?{query}").status_code == 200
        return cache.cache_info().currsize

    assert [send(amount) for amount in (1, 2, 3, 4)] == [0, 0, 0, 0]
    assert [send(amount) for amount in (1, 1, 2)] == [1, 1, 2]


def test_compiled_statement_is_kept_once_it_is_repeated(engine: Engine) -> None:
    compiled = engine.get_execution_options()["compiled_cache"]
    statement = select(literal_column("'test_repeated'"))
    sizes = []
    with engine.connect() as connection:
        for _ in range(3):
            connection.execute(statement)
            sizes.append(len(compiled))
    assert [size - sizes[0] for size in sizes] == [0, 1, 1]


def test_values_of_most_recent_keys_are_kept() -> None:
    recent = RecentValues[float](2)
    assert recent.get("a") is None
    assert recent.set("a", 1.5) is None
    recent.set("b", 2.5)
    assert recent.set("a", 3.5) == 1.5
    recent.set("c", 4.5)
    assert [recent.get(key) for key in "abc"] == [3.5, None, 4.5]
