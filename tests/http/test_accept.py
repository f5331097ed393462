import pytest

from placement_svc.http.accept import HTML, JSON, PLAIN, accepts_json, error_format


@pytest.mark.parametrize(
    ("header", "json", "errors"),
    [
        (None, True, JSON),
        ("", True, JSON),
        (" ", True, JSON),
        ("*/*", True, JSON),
        (" */* ", True, JSON),
        ("application/json", True, JSON),
        ("application/*", True, JSON),
        ("APPLICATION/JSON", True, JSON),
        ("application/json;q=0.1", True, JSON),
        ("application/xml, application/json", True, JSON),
        ("text/html;q=0.5, application/json;q=0.9", True, JSON),
        # The type with the higher quality; HTML if both are equal.
        ("text/html;q=0.9, application/json;q=0.5", True, HTML),
        ("text/html,application/json", True, HTML),
        ("*/*;q=0.8", True, HTML),
        ("text/*, application/*", True, HTML),
        # JSON is not allowed.
        ("text/html", False, HTML),
        ("text/html, application/json;q=0", False, HTML),
        ("text/plain", False, PLAIN),
        ("application/xml", False, PLAIN),
        ("application/json;q=0", False, PLAIN),
        ("*/*;q=0", False, PLAIN),
        ("*/json", False, PLAIN),
        ("application/json; charset=utf-8", False, PLAIN),
        ('application/json; charset="utf-8"', False, PLAIN),
        # The first of equal ranges counts; the parameters of a wildcard mean nothing.
        ("application/json;q=0, application/json", False, PLAIN),
        ("application/json, application/json;q=0", True, JSON),
        ("application/*;q=0, APPLICATION/*", False, PLAIN),
        ("*/*;q=0, */*", False, PLAIN),
        ("application/*, application/*;v=1;q=0", True, JSON),
        ("*/*;q=0.5, */*;a=b;q=0", True, HTML),
        ("application/json, text/*, text/*;a=b;q=0", True, HTML),
        ("application/*;a=b", True, JSON),
        # A quoted parameter.
        (r'application/json;a="b\"c"', False, PLAIN),
        (r'application/json;a="b\"c", text/html;q=0.1', False, HTML),
        # Malformed headers.
        ("json", True, HTML),
        ("nonsense", True, HTML),
        ("application/json application/xml", True, HTML),
        ("text/html; q=", True, HTML),
        ("application/json;q=2", True, HTML),
        ("application/json;q=0.1234", True, HTML),
        ("application/json;q=.5", True, HTML),
        ("application/json;a", True, HTML),
        (",application/json", True, HTML),
        # Empty list items, parameters after the weight.
        ("application/json,", True, JSON),
        (", , application/json", True, JSON),
        ("application/json;Q=0", False, PLAIN),
        ("application/json;q=0.5;ext=1;more", True, JSON),
    ],
)
def test_accept(header, json, errors):
    assert accepts_json(header) == json
    assert error_format(header) == errors


def test_accept_header_of_many_commas_is_parsed_in_linear_time():
    assert accepts_json("a/b," * 5000 + "!")
    assert accepts_json("," * 20000 + "!")
    assert accepts_json("," + " " * 20000 + "!")


@pytest.mark.parametrize("part", ["*/*", "*/*;*=*", "*/*;q=1;*=*", "text/*", "**/**", "a/b;c=d;q=0"])
def test_malformed_accept_header_is_rejected_in_linear_time(part: str) -> None:
    assert error_format(",".join([part] * 500) + ",x") == HTML
    assert error_format(";".join([part] * 500) + ",x") == HTML
