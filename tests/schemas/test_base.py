import re

import pytest

from placement_svc.domain.errors import Invalid
from placement_svc.schemas.base import (
    DASHED_UUID,
    UUID,
    Array,
    Document,
    Integer,
    Map,
    Number,
    Object,
    String,
    check,
    matches,
)

SOME_UUID = "6bd9e2ba-5d2a-4f4b-a9b3-0f6c0a8f3b01"


class Inner(Document):
    total = Integer(1, 10, required=True)
    note = String(max_length=3)


class Outer(Document):
    name = String(required=True)
    inner = Object(Inner(), required=True)
    newer = Integer(since="1.10")
    older = Integer(until="1.10")
    nothing = String(allow_none=True)


def problem(field, value):
    with pytest.raises(Invalid) as refused:
        check(field, value)
    return str(refused.value).removeprefix("JSON does not validate: ")


# Values


@pytest.mark.parametrize(
    ("field", "value", "meaning"),
    [
        (Integer(), 5, 5),
        (Integer(), 5.0, 5),
        (Integer(), -(10**30), -(10**30)),
        (Integer(), 1e30, int(1e30)),
        (Integer(1, 5), 1, 1),
        (Integer(1, 5), 5, 5),
        (Integer(allow_none=True), None, None),
        (Number(), 1, 1.0),
        (Number(5.5), 5.5, 5.5),
        (Number(), -1e300, -1e300),
        (String(), "", ""),
        (String(min_length=1, max_length=2), "☃☃", "☃☃"),
        (String(pattern="^[A-Z]+$"), "A", "A"),
        (String(pattern="^all|^[A-Z]$"), "allsorts", "allsorts"),
        (Array(Integer()), [], []),
        (Array(Integer(), min_items=1, unique=True), [1, 2.0], [1, 2]),
        (Array(Integer()), [1, 1], [1, 1]),
        (Map("^[A-Z]+$", Integer()), {"A": 1, "B": 2.0}, {"A": 1, "B": 2}),
        (Map("^[A-Z]+$", Integer(), closed=False), {"A": 1, "b": "as it is"}, {"A": 1, "b": "as it is"}),
        (Object(Inner()), {"total": 1, "note": "abc"}, {"total": 1, "note": "abc"}),
    ],
)
def test_value(field, value, meaning):
    found = check(field, value)
    assert found == meaning
    assert type(found) is type(meaning)


@pytest.mark.parametrize("text", [SOME_UUID, SOME_UUID.upper()])
@pytest.mark.parametrize("form", [UUID, DASHED_UUID])
def test_uuid(text, form):
    assert check(String(uuid=form), text) == text


LENIENT = [
    SOME_UUID.replace("-", ""),
    f"{{{SOME_UUID}}}",
    f"urn:uuid:{SOME_UUID}",
    f"urn:uuid:{{{SOME_UUID.upper()}}}",
    f"{{urn:uuid:{SOME_UUID}}}",
    f"{{{SOME_UUID}",
    f"{SOME_UUID}}}",
    f"-{SOME_UUID}--",
    "6bd9e2ba5d2a-4f4ba9b3-0f6c0a8f3b01",
]


@pytest.mark.parametrize("text", LENIENT)
def test_uuid_in_another_form(text):
    assert check(String(uuid=UUID), text) == text
    assert problem(String(uuid=DASHED_UUID), text).startswith(f"{text!r} is not a 'uuid'")


@pytest.mark.parametrize(
    "text",
    ["", "uuid", SOME_UUID + "\n", f" {SOME_UUID}", f"URN:UUID:{SOME_UUID}", SOME_UUID[:-1], SOME_UUID + "0"],
)
def test_no_uuid(text):
    reason = f"{text!r} is not a 'uuid'  Failed validating 'format' in schema: {{'format': 'uuid'}}"
    assert problem(String(uuid=UUID), text) == f"{reason}  On instance: {text!r}"


# Violations: keyword and wording


@pytest.mark.parametrize(
    ("field", "value", "keyword", "rule", "reason"),
    [
        (Integer(), "x", "type", "integer", "'x' is not of type 'integer'"),
        (Integer(), None, "type", "integer", "None is not of type 'integer'"),
        (Integer(), True, "type", "integer", "True is not of type 'integer'"),
        (Integer(), 1.5, "type", "integer", "1.5 is not of type 'integer'"),
        (Integer(), [1], "type", "integer", "[1] is not of type 'integer'"),
        (Integer(allow_none=True), "x", "type", ["integer", "null"], "'x' is not of type 'integer', 'null'"),
        (Integer(1), 0, "minimum", 1, "0 is less than the minimum of 1"),
        (Integer(1, 9), 10, "maximum", 9, "10 is greater than the maximum of 9"),
        (Number(), "1", "type", "number", "'1' is not of type 'number'"),
        (Number(), False, "type", "number", "False is not of type 'number'"),
        (Number(1.5), 1.6, "maximum", 1.5, "1.6 is greater than the maximum of 1.5"),
        (Number(1.5), 10**400, "maximum", 1.5, f"{10**400} is greater than the maximum of 1.5"),
        (String(), 1, "type", "string", "1 is not of type 'string'"),
        (String(min_length=1), "", "minLength", 1, "'' should be non-empty"),
        (String(max_length=1), "ab", "maxLength", 1, "'ab' is too long"),
        (String(pattern="^[A-Z]+$"), "x", "pattern", "^[A-Z]+$", "'x' does not match '^[A-Z]+$'"),
        (String(pattern="^[A-Z]+$"), "X\n", "pattern", "^[A-Z]+$", r"'X\n' does not match '^[A-Z]+$'"),
        (String(), "\0", "pattern", r"^[^\x00]*$", r"'\x00' does not match '^[^\\x00]*$'"),
        (Array(Integer()), {}, "type", "array", "{} is not of type 'array'"),
        (Array(Integer(), min_items=1), [], "minItems", 1, "[] should be non-empty"),
        (Array(String(), unique=True), ["a", "a"], "uniqueItems", True, "['a', 'a'] has non-unique elements"),
        (Map("^[A-Z]+$", Integer()), [], "type", "object", "[] is not of type 'object'"),
        (Map("^[A-Z]+$", Integer(), min_members=1), {}, "minProperties", 1, "{} should be non-empty"),
        (
            Map("^[A-Z]+$", Integer()),
            {"a": 1},
            "additionalProperties",
            False,
            "'a' does not match any of the regexes: '^[A-Z]+$'",
        ),
        (
            Map("^[A-Z]+$", Integer()),
            {"b": 1, "a": 1},
            "additionalProperties",
            False,
            "'a', 'b' do not match any of the regexes: '^[A-Z]+$'",
        ),
        (Object(Inner()), [], "type", "object", "[] is not of type 'object'"),
        (Object(Inner()), None, "type", "object", "None is not of type 'object'"),
        (Object(Inner()), {}, "required", ["total"], "'total' is a required property"),
        (
            Object(Inner()),
            {"total": 1, "x": 2},
            "additionalProperties",
            False,
            "Additional properties are not allowed ('x' was unexpected)",
        ),
        (
            Object(Inner()),
            {"y": 1, "total": 1, "x": 2},
            "additionalProperties",
            False,
            "Additional properties are not allowed ('x', 'y' were unexpected)",
        ),
    ],
)
def test_violation(field, value, keyword, rule, reason):
    assert problem(field, value) == (
        f"{reason}  Failed validating {keyword!r} in schema: { {keyword: rule} }  On instance: {value!r}"
    )


# Violations: where


@pytest.mark.parametrize(
    ("field", "value", "schema", "instance"),
    [
        (Object(Inner()), {"total": 0}, "['properties']['total']", "['total']"),
        (Object(Inner()), {"total": None}, "['properties']['total']", "['total']"),
        (
            Object(Outer()),
            {"name": "n", "inner": {"total": 0}},
            "['properties']['inner']['properties']['total']",
            "['inner']['total']",
        ),
        (Object(Outer()), {"name": "n", "inner": {}}, "['properties']['inner']", "['inner']"),
        (Array(Integer()), [1, "x"], "['items']", "[1]"),
        (Array(Object(Inner())), [{"total": 0}], "['items']['properties']['total']", "[0]['total']"),
        (Map("^[A-Z]+$", Integer()), {"A": "x"}, "['patternProperties']['^[A-Z]+$']", "['A']"),
        (
            Map("^[A-Z]+$", Object(Inner())),
            {"A": {"total": "x"}},
            "['patternProperties']['^[A-Z]+$']['properties']['total']",
            "['A']['total']",
        ),
    ],
)
def test_place(field, value, schema, instance):
    found = problem(field, value)
    assert f" in schema{schema}: " in found
    assert f"  On instance{instance}: " in found


# Of several violations one is told


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        # The shallowest.
        ({"name": "n", "inner": {"total": 0}, "older": "x"}, "'x' is not of type 'integer'"),
        ({"inner": {"total": 0}}, "'name' is a required property"),
        ({"name": "n", "inner": {"total": 0}, "x": 1}, "Additional properties"),
        # Of one depth those that are required come first, in their order; then those that are not known.
        ({}, "'name' is a required property"),
        ({"x": 1}, "'name' is a required property"),
        ({"name": "n", "x": 1}, "'inner' is a required property"),
        # Of siblings the last, by name.
        ({"older": "x", "newer": "y", "name": "n", "inner": {"total": 1}}, "'x' is not of type"),
        ({"newer": "y", "older": 1, "name": 1, "inner": {"total": 1}}, "'y' is not of type"),
    ],
)
def test_violation_told(value, reason):
    assert problem(Object(Outer()), value).startswith(reason)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (Array(Integer()), ["x", 1, "y"], "'y' is not of type"),
        (Array(Integer(), unique=True), ["x", "x"], "['x', 'x'] has non-unique elements"),
        (String(pattern="^[A-Z]+$", max_length=3), "long", "'long' does not match"),
        (String(pattern="^[A-Z]+$", min_length=1), "", "'' does not match"),
    ],
)
def test_violation_told_of_a_value(field, value, reason):
    assert problem(field, value).startswith(reason)


def test_a_text_or_null_is_none_of_two():
    found = problem(String(allow_none=True), 5)
    assert found.startswith(
        "5 is not valid under any of the given schemas  Failed validating 'anyOf' in schema: "
    )


def test_one_of_some_texts():
    field = String(choices=("none", "isolate"))
    assert check(field, "isolate") == "isolate"
    assert problem(field, "both").startswith("'both' is not one of ['none', 'isolate']")


# Microversions


@pytest.mark.parametrize(
    ("version", "known", "unknown"),
    [((1, 9), "older", "newer"), ((1, 11), "newer", "older")],
)
def test_fields_come_and_go(version, known, unknown):
    body = {"name": "n", "inner": {"total": 1}}
    assert Outer.at(version).check(body | {known: 1})[known] == 1
    with pytest.raises(Invalid, match=rf"\('{unknown}' was unexpected\)"):
        Outer.at(version).check(body | {unknown: 1})


def test_a_document_of_a_version_is_made_once():
    assert Outer.at((1, 9)) is Outer.at((1, 9))


def test_null_is_a_value_where_it_is_allowed():
    body = {"name": "n", "inner": {"total": 1}, "nothing": None}
    assert Outer().check(body) == body


def test_what_the_problem_is_with_is_said_first():
    with pytest.raises(Invalid, match=re.escape("Invalid query string parameters: 'total' is a required")):
        Inner().check({}, "Invalid query string parameters: ")


# What clients send is quoted, up to a point


@pytest.mark.parametrize(
    ("field", "value"),
    [(Integer(), "x" * 10**6), (String(max_length=3), "x" * 10**6), (Object(Inner()), {"x" * 10**6: 1})],
)
def test_long_values_are_cut(field, value):
    assert len(problem(field, value)) < 3000


def test_deep_values_are_not_quoted():
    deep = []
    for _ in range(10**5):
        deep = [deep]
    assert problem(Integer(), deep).startswith("a deeply nested value is not of type 'integer'")


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        ("^[A-Z]+$", "A", True),
        ("^[A-Z]+$", "A\n", False),
        ("^a|^b$", "ax", True),
        ("^a|^b$", "bx", False),
        ("[a-z]", "-a-", True),
        ("[a-z]", "-", False),
    ],
)
def test_matches(pattern, text, is_match):
    assert matches(pattern, text) == is_match
