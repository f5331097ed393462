import re
import tracemalloc
from collections.abc import Iterator
from importlib import import_module

import pytest

from placement_svc.domain.errors import Invalid
from placement_svc.schemas.base import MAX_MEMBERS, MAX_VIOLATIONS, Array, Map, Object, Schema, check
from placement_svc.schemas.scalars import ANY_UUID, DASHED_UUID, NAME, Integer, Number, String, matches
from placement_svc.schemas.violations import quote

SOME_UUID = "6bd9e2ba-5d2a-4f4b-a9b3-0f6c0a8f3b01"


class Inner(Schema):
    total = Integer(1, 10, required=True)
    note = String(max_length=3)


class Outer(Schema):
    name = String(required=True)
    inner = Object(Inner(), required=True)
    newer = Integer(since="1.10")
    other = Integer()
    nullable = String(allow_none=True)


def error_of(field, value):
    with pytest.raises(Invalid) as raised:
        check(field, value)
    return str(raised.value).removeprefix("JSON does not validate: ")


# Values


@pytest.mark.parametrize(
    ("field", "value", "expected"),
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
def test_value(field, value, expected):
    loaded = check(field, value)
    assert loaded == expected
    assert type(loaded) is type(expected)


def test_negative_zero_is_zero():
    assert str(check(Number(), -0.0)) == "0.0"


@pytest.mark.parametrize("text", [SOME_UUID, SOME_UUID.upper()])
@pytest.mark.parametrize("pattern", [ANY_UUID, DASHED_UUID])
def test_uuid(text, pattern):
    assert check(String(uuid=pattern), text) == text


LENIENT_UUIDS = [
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


@pytest.mark.parametrize("text", LENIENT_UUIDS)
def test_lenient_uuid(text):
    assert check(String(uuid=ANY_UUID), text) == text
    assert error_of(String(uuid=DASHED_UUID), text).startswith(f"{text!r} is not a 'uuid'")


@pytest.mark.parametrize(
    "text",
    ["", "uuid", SOME_UUID + "\n", f" {SOME_UUID}", f"URN:UUID:{SOME_UUID}", SOME_UUID[:-1], SOME_UUID + "0"],
)
def test_invalid_uuid(text):
    reason = f"{text!r} is not a 'uuid'  Failed validating 'format' in schema: {{'format': 'uuid'}}"
    hint = "A uuid consists of 32 hexadecimal digits, with hyphens: 8-4-4-4-12."
    assert error_of(String(uuid=ANY_UUID), text) == f"{reason}  On instance: {text!r}  {hint}"


# Violations: keywords and reasons


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
        (String(pattern="^[A-Z]+$"), "x", "pattern", "^[A-Z]+$", "'x' does not match '^[A-Z]+$'"),
        (String(pattern="^[A-Z]+$"), "X\n", "pattern", "^[A-Z]+$", r"'X\n' does not match '^[A-Z]+$'"),
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
    assert error_of(field, value) == (
        f"{reason}  Failed validating {keyword!r} in schema: { {keyword: rule} }  On instance: {value!r}"
    )


# Violations: hints


@pytest.mark.parametrize(
    ("field", "value", "reason", "hint"),
    [
        (String(max_length=1), "ab", "'ab' is too long", "At most 1 character."),
        (String(max_length=255), "x" * 256, "is too long", "At most 255 characters."),
        (String(), "\0", r"'\x00' does not match '^[^\\x00]*$'", "A string cannot contain NUL characters."),
        (String(pattern="^x$", hint="Send x."), "y", "'y' does not match '^x$'", "Send x."),
        (
            String(pattern=NAME),
            "vcpu",
            "'vcpu' does not match '^[A-Z0-9_]+$'",
            "A name consists of the capital letters A to Z, digits and underscores.",
        ),
        (
            Map(NAME, Integer()),
            {"vcpu": 1},
            "'vcpu' does not match any of the regexes: '^[A-Z0-9_]+$'",
            "A name consists of the capital letters A to Z, digits and underscores.",
        ),
    ],
)
def test_violation_has_a_hint(field, value, reason, hint):
    error = error_of(field, value)
    assert reason in error
    assert error.endswith(f"{value!r}  {hint}")


def _schemas(schema: type[Schema] = Schema) -> Iterator[type[Schema]]:
    for each in schema.__subclasses__():
        yield each
        yield from _schemas(each)


def test_each_pattern_of_a_query_has_a_hint():
    import_module("placement_svc.app")
    fields = {
        f"{schema.__name__}.{name}": field
        for schema in _schemas()
        if schema.__name__.endswith("Query") and schema.__module__.startswith("placement_svc.")
        for name, field in schema().fields.items()
    }
    assert "HostsQuery.sort_by" in fields
    without_hint = [
        name
        for name, field in fields.items()
        if isinstance(field, String) and field.pattern and not field.hint
    ]
    assert without_hint == []


# Violations: paths


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
def test_paths(field, value, schema, instance):
    error = error_of(field, value)
    assert f" in schema{schema}: " in error
    assert f"  On instance{instance}: " in error


# One of several violations is reported


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        # The shallowest violation.
        ({"name": "n", "inner": {"total": 0}, "other": "x"}, "'x' is not of type 'integer'"),
        ({"inner": {"total": 0}}, "'name' is a required property"),
        ({"name": "n", "inner": {"total": 0}, "x": 1}, "Additional properties"),
        # At one depth, missing properties come first, in the order of their fields; then unknown properties.
        ({}, "'name' is a required property"),
        ({"x": 1}, "'name' is a required property"),
        ({"name": "n", "x": 1}, "'inner' is a required property"),
        # Among siblings, the last one by name.
        ({"other": "x", "newer": "y", "name": "n", "inner": {"total": 1}}, "'x' is not of type"),
        ({"newer": "y", "other": 1, "name": 1, "inner": {"total": 1}}, "'y' is not of type"),
    ],
)
def test_reported_violation(value, reason):
    assert error_of(Object(Outer()), value).startswith(reason)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (Array(Integer()), ["x", 1, "y"], "'y' is not of type"),
        (Array(Integer(), unique=True), ["x", "x"], "['x', 'x'] has non-unique elements"),
        (String(pattern="^[A-Z]+$", max_length=3), "long", "'long' does not match"),
        (String(pattern="^[A-Z]+$", min_length=1), "", "'' does not match"),
    ],
)
def test_reported_violation_of_a_value(field, value, reason):
    assert error_of(field, value).startswith(reason)


def test_wrong_type_of_a_nullable_string():
    error = error_of(String(allow_none=True), 5)
    assert error.startswith(
        "5 is not valid under any of the given schemas  Failed validating 'anyOf' in schema: "
    )


def test_choices():
    field = String(choices=("none", "isolate"))
    assert check(field, "isolate") == "isolate"
    assert error_of(field, "both").startswith("'both' is not one of ['none', 'isolate']")


# Microversions


@pytest.mark.parametrize("version", [(1, 9), (1, 10), (1, 11)])
def test_field_without_a_microversion_is_always_known(version):
    body = {"name": "n", "inner": {"total": 1}, "other": 1}
    assert Outer.at(version).check(body) == body


@pytest.mark.parametrize("version", [(1, 10), (1, 11)])
def test_field_is_known_since_its_microversion(version):
    body = {"name": "n", "inner": {"total": 1}, "newer": 1}
    assert Outer.at(version).check(body) == body


def test_field_is_unknown_before_its_microversion():
    body = {"name": "n", "inner": {"total": 1}, "newer": 1}
    with pytest.raises(Invalid, match=r"\('newer' was unexpected\)"):
        Outer.at((1, 9)).check(body)


def test_schema_of_a_version_is_created_once():
    assert Outer.at((1, 9)) is Outer.at((1, 9))


def test_null_is_accepted_where_it_is_allowed():
    body = {"name": "n", "inner": {"total": 1}, "nullable": None}
    assert Outer().check(body) == body


def test_prefix_of_the_error():
    with pytest.raises(Invalid, match=re.escape("Invalid query string parameters: 'total' is a required")):
        Inner().check({}, "Invalid query string parameters: ")


# Quotes of clients' data


@pytest.mark.parametrize(
    ("field", "value"),
    [(Integer(), "x" * 10**6), (String(max_length=3), "x" * 10**6), (Object(Inner()), {"x" * 10**6: 1})],
)
def test_long_values_are_cut(field, value):
    assert len(error_of(field, value)) < 3000


def test_deep_values_are_not_quoted():
    value = []
    for _ in range(10**5):
        value = [value]
    assert error_of(Integer(), value).startswith("a deeply nested value is not of type 'integer'")


NESTED = {"a": [1, None, "it's", {"b": [[], {}, ""]}], "c": 1.5}


@pytest.mark.parametrize("value", [NESTED, "it's", 'say "a"', [], {}, True, "x" * 998])
def test_quote_is_what_python_prints(value):
    assert quote(value) == repr(value)


@pytest.mark.parametrize("value", [[NESTED] * 50, {"x" * 2000: 1}, ["\\" * 999], [0] * 334])
def test_long_quote_is_the_beginning_of_what_python_prints(value):
    assert quote(value) == repr(value)[:1000] + "..."


# The cost of invalid values


class Counted(Integer):
    """An integer that counts how many values it validates."""

    count = 0

    def _deserialize(self, value, *args, **kwargs):
        self.count += 1
        return super()._deserialize(value, *args, **kwargs)


def wrong_members(count):
    return {f"A{n:06}": "x" for n in range(count)}


def test_validation_of_an_array_ends_at_the_reported_violation():
    item = Counted()
    assert error_of(Array(item), ["x"] * MAX_MEMBERS).startswith("'x' is not of type")
    assert item.count == 1


def test_validation_of_an_object_ends_after_some_violations():
    value = Counted()
    error = error_of(Map("^[A-Z0-9]+$", value), wrong_members(MAX_MEMBERS))
    assert error.endswith(f"On instance['A{MAX_VIOLATIONS - 1:06}']: 'x'")
    assert value.count == MAX_VIOLATIONS


def test_members_of_an_invalid_object_are_not_validated():
    value = Counted()
    field = Map("^[A-Z0-9]+$", value)
    assert "does not match any of the regexes" in error_of(field, wrong_members(100) | {"a": 1})
    assert value.count == 0


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (Array(Integer()), [0] * (MAX_MEMBERS + 1), "... is too long  Failed validating 'maxItems'"),
        (
            Map("^[A-Z0-9]+$", Integer()),
            wrong_members(MAX_MEMBERS + 1),
            "... has too many properties  Failed validating 'maxProperties'",
        ),
    ],
)
def test_number_of_members_is_limited(field, value, reason):
    assert f"{reason} in schema: " in error_of(field, value)


def test_members_up_to_the_limit_are_valid():
    assert check(Array(Integer()), [0] * MAX_MEMBERS) == [0] * MAX_MEMBERS


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([1] * 1001, "1 is not of type"),
        (["a"] * 1001, "['a', 'a', "),
        (["a", 1, 1], "['a', 1, 1] has non-unique elements"),
        (["1", 1], "1 is not of type"),
        ([*map(str, range(1001)), "0"], "['0', '1', "),
    ],
)
def test_elements_of_long_arrays_are_compared_if_they_are_valid(items, reason):
    assert error_of(Array(String(), unique=True), items).startswith(reason)


def test_list_of_unknown_keys_is_cut():
    keys = {f"k{n:06}": 1 for n in reversed(range(MAX_MEMBERS))}
    error = error_of(Object(Inner()), {"total": 1, **keys})
    assert error.startswith("Additional properties are not allowed ('k000000', 'k000001', ")
    assert "'k000089', … and 99,910 more were unexpected)  Failed validating" in error
    assert len(error) < 3000


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


def test_a_long_text_that_is_no_uuid_needs_little_memory():
    text = "}" * 1_000_000
    tracemalloc.start()
    try:
        error_of(String(uuid=ANY_UUID), text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(text)
