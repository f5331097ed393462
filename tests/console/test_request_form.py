"""The form of the view Ask: pasted requests, and what an explanation proposes instead."""

from collections.abc import Sequence
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_svc.console.relaxations import relaxed
from placement_svc.console.request_form import (
    GROUP_KINDS,
    REQUEST_KINDS,
    FieldKind,
    Pairs,
    RequestForm,
    form_of,
    is_request,
    parse_pasted,
)
from placement_svc.schemas.candidates_query import GROUP_KEYS, ExtendedRequestQuery
from placement_svc.schemas.query import parse_pairs
from tests.conftest import examples
from tests.support.strategies import clouds, requests

QUERY = (
    "resources=VCPU:4,MEMORY_MB:8&required=A,B,!C,!D&required=in:E,F&member_of=in:X,Y&member_of=!Z"
    "&member_of=!in:V,W&in_tree=T&resources_1=VCPU:2&required_1=A&group_policy=isolate&same_subtree=_1,_2"
)


@pytest.mark.parametrize(
    "text",
    [
        "resources=VCPU:4&limit=3",
        "?resources=VCPU:4&limit=3",
        "  resources=VCPU%3A4&limit=3\n",
        "http://localhost:8778/allocation_candidates?resources=VCPU:4&limit=3",
        "GET /placement/allocation_candidates?resources=VCPU:4&limit=3 HTTP/1.1",
        "curl -H 'X-Auth-Token: x' 'http://localhost/allocation_candidates?resources=VCPU:4&limit=3' -v",
        '"/allocation_candidates/explanation?resources=VCPU:4&limit=3"',
        "resources=VCPU:4&limit=3#refresh=10",
        r"curl -s http://localhost/allocation_candidates?resources=VCPU:4\&limit=3",
        "curl -G http://localhost/allocation_candidates --data-urlencode resources=VCPU:4 -d limit=3",
        "curl -sG \\\n 'http://localhost/allocation_candidates?resources=VCPU:4' \\\n --data 'limit=3'",
        "curl 'http://localhost/allocation_candidates?resources=VCPU:4&limit=3",
        "/allocation_candidates/explanation?resources=VCPU:4&relaxations=0&limit=3&stale=ok",
        r"curl $'http://h/allocation_candidates?resources=\u0056CPU:4&limit=3' -H 'Accept: text/html'",
        "curl -sGd resources=VCPU:4 -d limit=3 http://h/allocation_candidates",
        "curl -G http://h/allocation_candidates -dresources=VCPU:4 -XGET -d limit=3",
        "curl http://h/allocation_candidates --url-query resources=VCPU:4 --url-query '+limit=%33'",
        "curl -s 'http://h/allocation_candidates?resources=VCPU:4&limit=3'|jq .",
        "curl -G http://h/allocation_candidates -d resources=VCPU:4 -d limit=3 | jq -d foo=bar",
        "curl -G http://h/allocation_candidates -d resources=VCPU:4 -d limit=3 && jq -d foo=bar",
        "$ curl -G http://h/allocation_candidates -d resources=VCPU:4 -d limit=3",
        "/usr/bin/curl -G http://h/allocation_candidates -d resources=VCPU:4 -d limit=3",
        "TOKEN=x curl -G http://h/allocation_candidates -d resources=VCPU:4 -d limit=3",
        "# What's free\r\ncurl -G \\\r\n http://h/allocation_candidates -d resources=VCPU:4 -d limit=3",
        'curl ^"http://h/allocation_candidates?resources=VCPU^%^3A4^&limit=3^" ^\r\n -H ^"Accept: */*^"',
        "curl 'http://h/allocation_candidates?resources=VCPU:4&limit=3' -H 'Referer: /console/ask?limit=1'",
        "curl http://h/allocation_candidates?resources=VCPU:4 -d resources=VCPU:1 --url-query limit=3",
    ],
)
def test_query_is_found_in_pasted_text(text: str) -> None:
    assert parse_pasted(text) == [("resources", "VCPU:4"), ("limit", "3")]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "  \n\n\t"])
@pytest.mark.parametrize("prefix", ["", "http://h/allocation_candidates", "GET /console/ask"])
@pytest.mark.parametrize(
    "lines",
    [
        ["?resources=VCPU:4,MEMORY_MB:8", "&limit=3"],
        ["?resources=VCPU:4,MEMORY_MB:8&", "limit=3"],
        ["?", "resources=VCPU:4,", "MEMORY_MB:8", "&limit=3", ""],
        ["", "?resources=VCPU:4,", "MEMORY_MB:8&limit=3"],
    ],
)
def test_query_may_be_broken_into_lines(prefix: str, lines: list[str], line_break: str) -> None:
    text = prefix + line_break.join(lines)
    assert parse_pasted(text) == [("resources", "VCPU:4,MEMORY_MB:8"), ("limit", "3")]


def test_lines_that_are_urls_are_not_joined() -> None:
    urls = [f"http://h/allocation_candidates?resources=VCPU:{amount}" for amount in (4, 5)]
    assert parse_pasted("\n".join(urls)) == [("resources", "VCPU:4")]


@pytest.mark.parametrize(
    "text",
    [
        "http://h/allocation_candidates/capacity?resources=VCPU:4&limit=7&max=9",
        "curl -G http://h/allocation_candidates/capacity -d resources=VCPU:4 -d limit=7",
    ],
)
def test_limit_of_a_page_of_hosts_is_not_that_of_the_request(text: str) -> None:
    assert parse_pasted(text) == [("resources", "VCPU:4")]


@pytest.mark.parametrize(
    ("escaped", "value"),
    [
        (r"\u0021CUSTOM_T1", "!CUSTOM_T1"),
        (r"\'\\", "'\\"),
        (r"\ud83d\ude00", "\N{GRINNING FACE}"),
    ],
)
def test_escapes_of_bash_are_decoded(escaped: str, value: str) -> None:
    command = f"curl -G http://h/allocation_candidates -d $'required={escaped}'"
    assert parse_pasted(command) == [("required", value)]


@pytest.mark.parametrize("text", [r"curl $'\ud83d'", r"curl $'\u00", "curl", "curl -d", "curl -", "curl |"])
def test_incomplete_command_has_no_request(text: str) -> None:
    assert not is_request(parse_pasted(text))


@pytest.mark.parametrize(
    ("relaxation", "gone", "come"),
    [
        ({"without": "required=A"}, {("required", "A,B,!C,!D")}, {("required", "B,!C,!D")}),
        ({"without": "required=!C,!D"}, {("required", "A,B,!C,!D")}, {("required", "A,B")}),
        ({"without": "required=in:E,F"}, {("required", "in:E,F")}, set()),
        ({"without": "required_1=A"}, {("required_1", "A")}, set()),
        ({"without": "member_of=in:X,Y"}, {("member_of", "in:X,Y")}, set()),
        ({"without": "member_of=!in:Z,V,W"}, {("member_of", "!Z"), ("member_of", "!in:V,W")}, set()),
        ({"without": "in_tree=T"}, {("in_tree", "T")}, set()),
        ({"without": "same_subtree=_1,_2"}, {("same_subtree", "_1,_2")}, set()),
        ({"without": "group_policy=isolate"}, {("group_policy", "isolate")}, {("group_policy", "none")}),
        (
            {"instead": "resources=VCPU:2"},
            {("resources", "VCPU:4,MEMORY_MB:8")},
            {("resources", "VCPU:2,MEMORY_MB:8")},
        ),
        ({"without": ["in_tree=T", "required_1=A"]}, {("in_tree", "T"), ("required_1", "A")}, set()),
        (
            {"without": "in_tree=T", "instead": "resources_1=VCPU:1"},
            {("in_tree", "T"), ("resources_1", "VCPU:2")},
            {("resources_1", "VCPU:1")},
        ),
    ],
)
def test_relaxation_changes_only_what_it_names(
    relaxation: dict[str, object], gone: set[tuple[str, str]], come: set[tuple[str, str]]
) -> None:
    pairs = parse_pairs(QUERY.encode())
    changed = relaxed(pairs, relaxation)
    assert set(pairs) - set(changed) == gone
    assert set(changed) - set(pairs) == come


@pytest.mark.parametrize(
    ("without", "key"),
    [
        ("in_tree=U&in_tree=!in:V,W", "in_tree"),
        ("in_tree_1=!X", "in_tree_1"),
        ("root_required=A&root_required=in:B,C", "root_required"),
        ("root_member_of=A&root_member_of=!B", "root_member_of"),
        ("isolate=_1,_2", "isolate"),
    ],
)
def test_relaxation_of_a_key_whose_values_are_one_filter(without: str, key: str) -> None:
    pairs = parse_pairs(
        b"in_tree=U&in_tree=!V&in_tree=!W&in_tree_1=!X&root_required=A&root_required=in:B,C"
        b"&root_member_of=A&root_member_of=!B&isolate=_1&isolate=_2"
    )
    assert relaxed(pairs, {"without": without}) == [pair for pair in pairs if pair[0] != key]


@pytest.mark.parametrize(
    ("query", "without"),
    [
        ("required=in:A, B", "required=in:A,B"),
        ("required=in:A,B&required=in:B,A", "required=in:A,B"),
        ("required=A&required=in:A", "required=A"),
        ("required=in:A&required=A", "required=in:A"),
        ("required=!A, !B", "required=!A,!B"),
        ("member_of=in:X,Y&member_of=in:Y,X", "member_of=in:Y,X"),
        ("member_of=X&member_of=in:X", "member_of=in:X"),
        ("member_of=!X&member_of=!in:Y,Z", "member_of=!in:X,Y,Z"),
    ],
)
def test_relaxation_removes_each_way_to_write_its_filter(query: str, without: str) -> None:
    pairs = parse_pairs(f"resources=VCPU:1&{query}&required_1=A,B&member_of_1=X".encode())
    assert relaxed(pairs, {"without": without}) == [
        ("resources", "VCPU:1"),
        ("required_1", "A,B"),
        ("member_of_1", "X"),
    ]


def test_every_key_of_a_request_has_a_field() -> None:
    assert {kind.key for kind in GROUP_KINDS} == set(GROUP_KEYS)
    assert {kind.key for kind in REQUEST_KINDS} == {*ExtendedRequestQuery().fields, "root"}


@pytest.mark.parametrize("kinds", [GROUP_KINDS, REQUEST_KINDS])
def test_fields_repeat_as_the_keys_may(kinds: Sequence[FieldKind]) -> None:
    fields = ExtendedRequestQuery().fields
    repeatable = {"required", "member_of", "in_tree"} | {
        key for key, field in fields.items() if field.metadata.get("repeats")
    }
    assert {kind.key for kind in kinds if kind.repeats} == {kind.key for kind in kinds} & repeatable


def sent_by(form: RequestForm) -> Pairs:
    """Return what a browser sends of a form, without the fields that are empty."""
    fields = [field for group in form.groups for field in group.fields] + list(form.fields)
    return [(field.key, value) for field in fields for value in field.values if value] + form.others


def by_key(pairs: Pairs) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


def test_form_has_every_value_of_the_request() -> None:
    pairs = [*parse_pairs(QUERY.encode()), ("limit", "5"), ("order_by", "random"), ("future", "1")]
    form = form_of(pairs, "_2")
    assert by_key(sent_by(form)) == by_key(pairs)
    assert form.others == [("future", "1")]
    assert [group.suffix for group in form.groups] == ["", "_1", "_2"]
    assert form.more_blank == "_2,_3"


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_form_sends_the_request_that_it_shows(data: st.DataObject) -> None:
    pairs = parse_pairs(data.draw(requests(data.draw(clouds()))).query().encode())
    pairs = data.draw(st.permutations(pairs)) if data.draw(st.booleans()) else pairs
    form = form_of(pairs, None)
    sent = sent_by(form)
    assert by_key(sent) == by_key(pairs)
    assert form_of(sent, None) == form
    assert parse_pasted(urlencode(pairs)) == pairs
