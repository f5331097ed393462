"""The form of the view Ask: pasted requests, and what an explanation proposes instead."""

import pytest

from placement_svc.console.relaxations import relaxed
from placement_svc.console.request_form import form_of, parse_pasted
from placement_svc.schemas.query import parse_pairs

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
    ],
)
def test_query_is_found_in_pasted_text(text: str) -> None:
    assert parse_pasted(text) == [("resources", "VCPU:4"), ("limit", "3")]


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


def test_form_has_every_value_of_the_request() -> None:
    pairs = [*parse_pairs(QUERY.encode()), ("limit", "5"), ("order_by", "random")]
    form = form_of(pairs, "_2")
    fields = [field for group in form.groups for field in group.fields] + list(form.fields)
    shown = {(field.key, value) for field in fields for value in field.values if value}
    shown |= {("group_policy", form.group_policy), ("limit", form.limit), *form.others}
    assert shown == set(pairs)
    assert [group.suffix for group in form.groups] == ["", "_1", "_2"]
    assert form.new_suffix == "_3"
