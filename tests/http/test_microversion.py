import pytest
from flask import Flask, g

from placement_svc.domain.version_header import VERSION_HEADER
from placement_svc.http.microversion import (
    CHANGES,
    NEWEST,
    OLDEST,
    BadMicroversion,
    UnacceptableMicroversion,
    current,
    negotiate,
    negotiate_request,
    since,
)


@pytest.mark.parametrize(
    ("sent", "version"),
    [
        ([], "1.0"),
        ([(VERSION_HEADER, "")], "1.0"),
        ([(VERSION_HEADER, "placement 1.5")], "1.5"),
        ([(VERSION_HEADER, "placement 1.39")], "1.39"),
        ([(VERSION_HEADER, "placement latest")], "1.39"),
        ([(VERSION_HEADER, "PLACEMENT 1.5")], "1.5"),
        ([(VERSION_HEADER.lower(), "placement 1.5")], "1.5"),
        ([(VERSION_HEADER, "placement  1.5 ")], "1.5"),
        ([(VERSION_HEADER, "placement 01.05")], "1.5"),
        ([(VERSION_HEADER, "placement +1.5")], "1.5"),
        ([(VERSION_HEADER, "placement 1 . +05")], "1.5"),
        ([(VERSION_HEADER, "placement 1.5, placement 1.7")], "1.7"),
        ([(VERSION_HEADER, "placement 1.5"), (VERSION_HEADER, "placement 1.7")], "1.7"),
        ([(VERSION_HEADER, "placement 1.5, compute 2.1")], "1.5"),
        ([(VERSION_HEADER, "placement 1.5"), (VERSION_HEADER, "compute 2.1")], "1.5"),
        ([(VERSION_HEADER, "compute 2.1")], "1.0"),
        ([(VERSION_HEADER, "1.5")], "1.0"),
        ([(VERSION_HEADER, "placement")], "1.0"),
        ([(VERSION_HEADER, "placement:1.7")], "1.0"),
        ([("OpenStack-placement-API-Version", "1.5")], "1.0"),
        ([("X-OpenStack-Placement-API-Version", "1.5")], "1.0"),
    ],
)
def test_version(sent, version):
    with Flask(__name__).test_request_context(headers=sent):
        negotiate_request(is_extension_path=False)
        assert str(current()) == version


@pytest.mark.parametrize(
    "version",
    [
        *("foo", "1", "1.x", "1.2.3", "1.5 x", "LATEST", ".5", "1.", "1." + "9" * 5000),
        *("1.3_9", "1_.39", "0_1.39", "1.３９", "1.\xa039"),
    ],
)
def test_malformed_version(version):
    with pytest.raises(BadMicroversion) as raised:
        negotiate(f"placement {version}", "placement", tuple(CHANGES))
    assert raised.value.code == 400
    assert raised.value.description == f"Invalid microversion: invalid version string: {version}"


@pytest.mark.parametrize("version", ["0.9", "1.40", "2.0", "-1.5", "1.-5"])
def test_unsupported_version(version):
    with pytest.raises(UnacceptableMicroversion) as raised:
        negotiate(f"placement {version}", "placement", tuple(CHANGES))
    assert raised.value.code == 406
    assert raised.value.description == f"Unacceptable version header: {version}"
    assert raised.value.range == {"max_version": "1.39", "min_version": "1.0"}


def test_history_has_every_version_in_order():
    assert list(CHANGES) == [f"1.{minor}" for minor in range(40)]
    assert (OLDEST, NEWEST) == ("1.0", "1.39")


@pytest.mark.parametrize(
    ("version", "other", "is_since"),
    [("1.0", "1.0", True), ("1.9", "1.10", False), ("1.10", "1.9", True), ("1.39", "1.39", True)],
)
def test_since(version, other, is_since):
    with Flask(__name__).test_request_context():
        g.microversion = negotiate(f"placement {version}", "placement", tuple(CHANGES))
        assert since(other) == is_since
        assert str(current()) == version


def test_no_version_is_current_before_negotiation():
    with Flask(__name__).test_request_context():
        assert current() is None
