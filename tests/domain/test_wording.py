import pytest

from placement_svc.domain.wording import (
    MAX_LISTING,
    counted,
    list_names,
    list_sorted_names,
    shorten,
    without_schema,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 hosts"), (1, "1 host"), (1000, "1,000 hosts"), (1.0, "1 host"), (0.5, "0.5 hosts")],
)
def test_counted(number, text):
    assert counted(number, "host") == text


def test_counted_with_an_irregular_plural():
    assert [counted(number, "class", "classes") for number in (1, 2)] == ["1 class", "2 classes"]


@pytest.mark.parametrize(
    ("names", "listing"),
    [
        ([], ""),
        (["b", "a"], "b, a"),
        ([f"{n}" for n in range(100)], ", ".join(f"{n}" for n in range(100))),
        ([f"{n}" for n in range(100_000)], ", ".join(f"{n}" for n in range(100)) + ", … and 99,900 more"),
        (["x" * 600, "y" * 600], "x" * 600 + ", … and 1 more"),
        (["x" * 1234, "y"], "x" * 1000 + "… and 234 more characters, … and 1 more"),
    ],
)
def test_list_of_names(names, listing):
    assert list_names(names) == listing


def test_list_of_sorted_names():
    assert list_sorted_names(["b", "a"], repr) == "'a', 'b'"
    many = list_sorted_names([f"{n:06}" for n in reversed(range(100_000))], repr)
    assert many.startswith("'000000', '000001', ")
    assert many.endswith(" and 99,900 more") is (len(many) > MAX_LISTING)
    assert len(many) < MAX_LISTING + 30


def test_shortened_text():
    assert shorten("abc", 3) == "abc"
    assert shorten("x" * 12_345, 345) == "x" * 345 + "… and 12,000 more characters"


SCHEMA = "  Failed validating 'pattern' in schema['properties']['x']: {'pattern': '^a$'}  On instance['x']: "


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" No such trait.  ", "No such trait."),
        (f"'b' does not match '^a$'{SCHEMA}'b'  Send a.", "'b'. Send a."),
        (
            f"'b', 'c' do not match any of the regexes: '^a$'{SCHEMA}{{'b': 1}}  Send a.",
            "'b', 'c' are not known. Send a.",
        ),
        (
            f"'b' does not match any of the regexes: '^a$'{SCHEMA}{{'b': 1}}  Send a.",
            "'b' is not known. Send a.",
        ),
        (f"'b' was unexpected{SCHEMA}'b'  'b' needs 1.4.", "'b' was unexpected. 'b' needs 1.4."),
        (f"'b' does not match '^a$'{SCHEMA}'b'", "'b' does not match '^a$'"),
        (f"'b  c.' does not match '^a$'{SCHEMA}'b  c.'", "'b  c.' does not match '^a$'"),
        (f"'b  c...' does not match '^a$'{SCHEMA}'b  c...", "'b  c...' does not match '^a$'"),
    ],
)
def test_error_without_schema(text, shown):
    assert without_schema(text) == shown
