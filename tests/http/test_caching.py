from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask, Response, g

from placement_svc.http import caching

OLD, NEW = datetime(2001, 2, 3, 4, 5, 6, 789, UTC), datetime(2002, 2, 3, tzinfo=UTC)


def is_now(time):
    return abs(datetime.now(UTC) - time) < timedelta(minutes=1)


def test_newest():
    assert caching.newest(iter([OLD, NEW, OLD])) == NEW


def test_newest_of_no_times_is_now():
    assert is_now(caching.newest([]))


def test_now():
    assert is_now(caching.now())


@pytest.mark.parametrize(
    ("version", "modified", "expected"),
    [
        ((1, 14), OLD, (None, None)),
        ((1, 14), None, (None, None)),
        ((1, 15), OLD, ("no-cache", "Sat, 03 Feb 2001 04:05:06 GMT")),
        ((1, 15), None, ("no-cache", None)),
        ((1, 39), NEW, ("no-cache", "Sun, 03 Feb 2002 00:00:00 GMT")),
    ],
)
def test_cache_headers(version, modified, expected):
    with Flask(__name__).test_request_context():
        g.microversion = version
        response = caching.set_cache_headers(Response(), modified)
    assert (response.headers.get("Cache-Control"), response.headers.get("Last-Modified")) == expected
