import pytest

from placement_svc.domain.errors import Invalid
from placement_svc.domain.groups import NO_CONDITION, Membership
from placement_svc.schemas.groups import parse_member_of, parse_required, parse_resources, parse_root_required

A = "6bd9e2ba-5d2a-4f4b-a9b3-0f6c0a8f3b01"
B = "6bd9e2ba-5d2a-4f4b-a9b3-0f6c0a8f3b02"


def membership(*required, forbidden=()):
    return Membership(tuple(map(frozenset, required)), frozenset(forbidden))


@pytest.mark.parametrize(
    ("asked", "anything", "names", "contradictions"),
    [
        (NO_CONDITION, False, [], []),
        (membership("A"), True, ["A"], []),
        (membership(forbidden="A"), True, ["A"], []),
        (membership("B", "CA", forbidden="DB"), True, ["B", "A", "C", "D"], [{"B"}]),
        (membership("AB", forbidden="A"), True, ["A", "B"], []),
        (membership("AB", "A", forbidden="AB"), True, ["A", "B"], [{"A", "B"}, {"A"}]),
    ],
)
def test_membership(asked, anything, names, contradictions):
    assert bool(asked) == anything
    assert asked.names == names
    assert asked.contradictions == contradictions


@pytest.mark.parametrize(
    ("value", "amounts"),
    [
        ("VCPU:1", {"VCPU": 1}),
        ("VCPU:1,DISK_GB:20", {"VCPU": 1, "DISK_GB": 20}),
        ("VCPU:1,VCPU:2", {"VCPU": 2}),
        ("VCPU: +1_0 ", {"VCPU": 10}),
        (" VCPU:01", {" VCPU": 1}),
        (":1", {"": 1}),
        (f"VCPU:{10**30}", {"VCPU": 10**30}),
    ],
)
def test_resources(value, amounts):
    assert parse_resources(value) == amounts


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "Badly formed resources parameter. .* Got: empty string."),
        (" ", "Badly formed resources parameter. .* Got: empty string."),
        ("VCPU", "Badly formed resources parameter. .* Got: VCPU."),
        ("VCPU:1,", "Badly formed resources parameter. .* Got: .$"),
        ("VCPU:1:2", "Badly formed resources parameter. .* Got: VCPU:1:2."),
        ("VCPU:", "Requested resource VCPU expected positive integer amount. Got: ."),
        ("VCPU:1.5", "Requested resource VCPU expected positive integer amount. Got: 1.5."),
        ("VCPU:" + "9" * 5000, "Requested resource VCPU expected positive integer amount."),
        ("VCPU:0", "Requested resource VCPU requires amount >= 1. Got: 0."),
        ("VCPU:-3", "Requested resource VCPU requires amount >= 1. Got: -3."),
    ],
)
def test_bad_resources(value, problem):
    with pytest.raises(Invalid, match=problem):
        parse_resources(value)


@pytest.mark.parametrize(
    ("values", "version", "asked"),
    [
        ([], (1, 39), NO_CONDITION),
        (["A"], (1, 18), membership("A")),
        (["A, B "], (1, 18), membership("A", "B")),
        (["A,!B"], (1, 22), membership("A", forbidden="B")),
        (["!!A"], (1, 22), membership(forbidden="A")),
        (["! A"], (1, 22), membership(forbidden=[" A"])),
        (["A,in:B"], (1, 39), membership("A", ["in:B"])),
        (["!in:A"], (1, 39), membership(forbidden=["in:A"])),
        # If a key is repeated, only its last value counts, and the others are not even read.
        (["A", "B"], (1, 38), membership("B")),
        (["", "B"], (1, 38), membership("B")),
        (["A", "B,!C"], (1, 39), membership("A", "B", forbidden="C")),
        (["in:A,B", "C"], (1, 39), membership("AB", "C")),
        (["in:A"], (1, 39), membership("A")),
        (["in: A , A"], (1, 39), membership("A")),
    ],
)
def test_required(values, version, asked):
    assert parse_required(values, version) == asked


FORM = "Expected 'required' parameter value of the form: HW_CPU_X86_VMX,"


@pytest.mark.parametrize(
    ("value", "version", "problem"),
    [
        ("", (1, 39), FORM + "!CUSTOM_MAGIC. Got an empty trait in: "),
        ("A,", (1, 22), FORM + "!CUSTOM_MAGIC. Got an empty trait in: A,"),
        ("A,", (1, 21), FORM + "CUSTOM_MAGIC. Got an empty trait in: A,"),
        ("!", (1, 22), FORM + "!CUSTOM_MAGIC. Got an empty trait in: !"),
        ("!A", (1, 21), FORM + "CUSTOM_MAGIC. Got: !A"),
        ("A, !B", (1, 21), FORM + "CUSTOM_MAGIC. Got: A, !B"),
        ("in:A", (1, 38), "only supported since microversion 1.39."),
        ("in:", (1, 39), "of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in: in:"),
        ("in:A,", (1, 39), "of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in: in:A,"),
        ("in:A,!B", (1, 39), "does not support forbidden traits."),
    ],
)
def test_bad_required(value, version, problem):
    with pytest.raises(Invalid, match=problem):
        parse_required([value], version)


def test_root_required():
    assert parse_root_required("A,!B", (1, 35)) == membership("A", forbidden="B")


@pytest.mark.parametrize("version", [(1, 35), (1, 39)])
def test_root_required_has_no_choice(version):
    with pytest.raises(Invalid, match=r"only supported since microversion 1.39."):
        parse_root_required("in:A", version)


@pytest.mark.parametrize(
    ("values", "version", "asked"),
    [
        ([], (1, 3), NO_CONDITION),
        ([A], (1, 3), membership([A])),
        ([A.replace("-", "").upper()], (1, 3), membership([A.replace("-", "").upper()])),
        ([f"in:{A},{B}"], (1, 3), membership([A, B])),
        ([f"in:{A}"], (1, 3), membership([A])),
        ([A, f"in:{A},{B}"], (1, 24), membership([A], [A, B])),
        ([f"!{A}"], (1, 32), membership(forbidden=[A])),
        ([f"!in:{A},{B}"], (1, 32), membership(forbidden=[A, B])),
        ([f"!{A}", A, f"!{B}"], (1, 32), membership([A], forbidden=[A, B])),
    ],
)
def test_member_of(values, version, asked):
    assert parse_member_of("member_of", values, version) == asked


NO_UUID = "Expected 'member_of' parameter to contain valid UUID"


@pytest.mark.parametrize(
    ("values", "version", "problem"),
    [
        ([A, B], (1, 23), "Multiple member_of1 parameters are not supported"),
        ([f"!{A}"], (1, 31), "Forbidden member_of1 parameters are not supported"),
        # Errors of the value itself come first.
        (["!A"], (1, 31), NO_UUID),
        ([f"{A},{B}"], (1, 39), "Multiple values for 'member_of' must be prefixed with"),
        ([""], (1, 39), NO_UUID),
        (["in:"], (1, 39), NO_UUID),
        (["!"], (1, 39), NO_UUID),
        ([f"!!{A}"], (1, 39), NO_UUID),
        ([f"in:in:{A}"], (1, 39), NO_UUID),
        ([f"in:{A},!{B}"], (1, 39), NO_UUID),
        ([f"in:{A},"], (1, 39), NO_UUID),
        ([f" {A}"], (1, 39), NO_UUID),
    ],
)
def test_bad_member_of(values, version, problem):
    with pytest.raises(Invalid, match=problem):
        parse_member_of("member_of1", values, version)
