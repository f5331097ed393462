import pytest

from placement_svc.domain.errors import Invalid
from placement_svc.schemas.query import parse_pairs


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        (b"", []),
        (b"a=1", [("a", "1")]),
        (b"a=1&b=2", [("a", "1"), ("b", "2")]),
        (b"a=1;b=2", [("a", "1"), ("b", "2")]),
        (b"b=2&a=1&b=3", [("b", "2"), ("a", "1"), ("b", "3")]),
        (b"a=", [("a", "")]),
        (b"a", [("a", "")]),
        (b"=1", [("", "1")]),
        (b"a=b=c", [("a", "b=c")]),
        (b"&a=1&&", [("a", "1")]),
        (b"a=1+2%2B3", [("a", "1 2+3")]),
        (b"a=%26%3B%3d", [("a", "&;=")]),
        (b"%61=%e2%98%83", [("a", "☃")]),
        ("a=☃".encode(), [("a", "☃")]),
        (b"a=%", [("a", "%")]),
        (b"a=%zz", [("a", "%zz")]),
    ],
)
def test_pairs(query, pairs):
    assert parse_pairs(query) == pairs


@pytest.mark.parametrize("query", [b"a=%ff", b"a=\xff", b"%ff=a", b"a=1&b=%e2%98", b"a=%ed%a0%80"])
def test_pairs_that_are_not_utf8(query):
    with pytest.raises(Invalid, match=r"^Invalid query string parameters: .* must be UTF-8$"):
        parse_pairs(query)


@pytest.mark.parametrize("query", [b"a=%00", b"%00=a", b"a=1&b=2%003"])
def test_pairs_with_nul(query):
    with pytest.raises(Invalid, match=r"^Invalid query string parameters: .* cannot contain NUL$"):
        parse_pairs(query)
