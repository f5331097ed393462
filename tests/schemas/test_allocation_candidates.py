"""The request that the query string of GET /allocation_candidates describes (`docs/spec/candidates.md 2`).

`gabbits/allocation-candidates-errors.yaml` tests all errors of the query string over HTTP, and their order.
"""

from functools import partial
from urllib.parse import parse_qsl

import pytest

from placement_svc.domain.errors import BadQueryValue, DuplicateQueryKey, Invalid
from placement_svc.domain.groups import CandidatesRequest, GroupPolicy, Membership, SameSubtree
from placement_svc.schemas.allocation_candidates import MAX_CACHED_LENGTH, MAX_LIMIT_DIGITS, parse_request
from placement_svc.schemas.explanation import OWN_KEYS
from placement_svc.schemas.fits import parse_fits

A = "6bd9e2ba-5d2a-4f4b-a9b3-0f6c0a8f3b01"
B = "6bd9e2ba-5d2a-4f4b-a9b3-0f6c0a8f3b02"

ONE = "resources=VCPU:1"
TWO = "resources1=VCPU:1&resources2=VCPU:1&group_policy=none"


def parse(query: str, version: tuple[int, int] = (1, 39), *, extended: bool = False) -> CandidatesRequest:
    return parse_request(parse_qsl(query, keep_blank_values=True), version, extended=extended)


def fails(query: str, error: type[Invalid], text: str, version: tuple[int, int] = (1, 39)) -> None:
    with pytest.raises(Invalid) as raised:
        parse(query, version)
    assert type(raised.value) is error
    assert text in str(raised.value)


def test_short_request_is_parsed_once() -> None:
    assert parse(ONE) is parse(ONE)
    assert parse(ONE) is not parse(ONE, (1, 38))
    long = f"{ONE}&member_of=in:{','.join([A] * (MAX_CACHED_LENGTH // len(A)))}"
    assert parse(long) == parse(long)
    assert parse(long) is not parse(long)
    for _ in range(2):
        fails("resources=VCPU:0", Invalid, "VCPU")


def test_group_policy_is_optional_in_extended_requests() -> None:
    query = "resources1=VCPU:1&resources2=VCPU:1"
    fails(query, Invalid, 'The "group_policy" parameter is required')
    assert parse(query, extended=True).group_policy is GroupPolicy.NONE


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(ONE, [], id="absent"),
        pytest.param(f"{TWO}&same_subtree=1,2", ["12"], id="two suffixes"),
        pytest.param(f"{TWO}&same_subtree=%201%20,%202", ["12"], id="blanks"),
        pytest.param(f"{TWO}&same_subtree=1,1,2", ["12"], id="duplicates"),
        pytest.param(f"{TWO}&same_subtree=2", ["2"], id="one suffix"),
        pytest.param(f"{TWO}&same_subtree=1,2&same_subtree=1", ["12", "1"], id="repeated"),
        pytest.param(
            "resources1=VCPU:1&required2=CUSTOM_A&group_policy=none&same_subtree=1,2",
            ["12"],
            id="resourceless group",
        ),
    ],
)
def test_same_subtree(query: str, expected: list[str]) -> None:
    assert parse(query).same_subtree == tuple(SameSubtree(frozenset(each)) for each in expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "Empty string (unsuffixed group) can not be specified"),
        ("1,", "Empty string (unsuffixed group) can not be specified"),
        ("1,%20", "Empty string (unsuffixed group) can not be specified"),
        ("1,3", "Real suffixes should be specified in `same_subtree`: ['3'] don't exist."),
    ],
)
def test_bad_same_subtree(value: str, text: str) -> None:
    fails(f"{TWO}&same_subtree={value}", BadQueryValue, text)


def test_resourceless_group_must_be_in_same_subtree() -> None:
    query = "resources1=VCPU:1&required2=CUSTOM_A&required3=CUSTOM_A&group_policy=none&same_subtree=1,2"
    fails(query, BadQueryValue, "bad group(s) - ['3']")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(ONE, GroupPolicy.NONE, id="absent"),
        pytest.param(f"{ONE}&resources1=VCPU:1", GroupPolicy.NONE, id="not needed for one suffixed group"),
        pytest.param(f"{ONE}&group_policy=isolate", GroupPolicy.ISOLATE, id="accepted if not needed"),
        pytest.param(TWO, GroupPolicy.NONE, id="none"),
        pytest.param(f"{TWO}&group_policy=isolate", GroupPolicy.NONE, id="the first counts"),
    ],
)
def test_group_policy(query: str, expected: GroupPolicy) -> None:
    assert parse(query).group_policy is expected


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("resources1=VCPU:1&resources2=VCPU:1", 'The "group_policy" parameter is required'),
        ("resources1=VCPU:1&required2=CUSTOM_A&same_subtree=2", 'The "group_policy" parameter is required'),
        (f"{ONE}&group_policy=other", "Invalid query string parameters: 'other' is not one of"),
        (f"{TWO}&group_policy=other", "Invalid query string parameters: 'other' is not one of"),
    ],
)
def test_bad_group_policy(query: str, text: str) -> None:
    fails(query, Invalid, text)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", None),
        ("&limit=1", 1),
        ("&limit=5&limit=7", 5),
        (f"&limit={'9' * MAX_LIMIT_DIGITS}", 10**MAX_LIMIT_DIGITS - 1),
        (f"&limit={'9' * (MAX_LIMIT_DIGITS + 1)}", None),
    ],
    ids=["absent", "one", "the first counts", "large", "larger than any response"],
)
def test_limit(query: str, expected: int | None) -> None:
    assert parse(ONE + query).limit == expected


@pytest.mark.parametrize(
    "values", [["0"], ["01"], ["-1"], ["+1"], ["1.5"], [""], ["cow"], ["1", "0"], ["0", "1"]]
)
def test_bad_limit(values: list[str]) -> None:
    query = "".join(f"&limit={value}" for value in values)
    fails(ONE + query, Invalid, "Invalid query string parameters:")


@pytest.mark.parametrize(("version", "known"), [((1, 15), False), ((1, 16), True)])
def test_limit_is_a_key_since_1_16(version: tuple[int, int], known: bool) -> None:
    if known:
        assert parse(f"{ONE}&limit=3", version).limit == 3
    else:
        fails(f"{ONE}&limit=3", Invalid, "'limit' was unexpected", version)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(ONE, {"": None}, id="absent"),
        pytest.param(f"{ONE}&in_tree={A}", {"": A}, id="unsuffixed"),
        pytest.param(f"{ONE}&resources1=VCPU:1&in_tree1={A}", {"": None, "1": A}, id="suffixed"),
        pytest.param(f"{ONE}&in_tree=%20{A}%20", {"": A}, id="blanks"),
        pytest.param(f"{ONE}&in_tree={A.upper()}", {"": A.upper()}, id="compared as text"),
        pytest.param(f"{ONE}&in_tree={A.replace('-', '')}", {"": A.replace("-", "")}, id="without hyphens"),
        pytest.param(f"{ONE}&in_tree={A}&in_tree={B}", {"": B}, id="the last counts"),
    ],
)
def test_in_tree(query: str, expected: dict[str, str | None]) -> None:
    assert {group.suffix: group.in_tree for group in parse(query).groups} == expected


@pytest.mark.parametrize("query", ["in_tree=cow", f"in_tree=cow&in_tree={A}", "in_tree=", f"in_tree={A},{B}"])
def test_bad_in_tree(query: str) -> None:
    fails(f"{ONE}&{query}", Invalid, "Expected 'in_tree' parameter to be a format of uuid")


@pytest.mark.parametrize(
    ("query", "required", "forbidden"),
    [
        pytest.param("", [], "", id="absent"),
        pytest.param("&root_required=A", ["A"], "", id="required"),
        pytest.param("&root_required=!A", [], "A", id="forbidden"),
        pytest.param("&root_required=A,%20B%20,!C,!!D", ["A", "B"], "CD", id="several"),
    ],
)
def test_root_required(query: str, required: list[str], forbidden: str) -> None:
    expected = Membership(tuple(map(frozenset, required)), frozenset(forbidden))
    assert parse(ONE + query).root_required == expected


@pytest.mark.parametrize(
    ("query", "error", "text"),
    [
        ("root_required=A&root_required=B", DuplicateQueryKey, "may be specified only once"),
        ("root_required=A,!A", BadQueryValue, "found in root_required: A"),
        ("root_required=", Invalid, "Got an empty trait in:"),
        ("root_required=A,", Invalid, "Got an empty trait in:"),
        ("root_required=in:A,B", Invalid, "only supported since microversion 1.39"),
    ],
)
def test_bad_root_required(query: str, error: type[Invalid], text: str) -> None:
    fails(f"{ONE}&{query}", error, text)


@pytest.mark.parametrize(
    ("key", "value", "since"), [("in_tree", A, 31), ("root_required", "A", 35), ("same_subtree", "1", 36)]
)
def test_older_microversions_do_not_know_the_key(key: str, value: str, since: int) -> None:
    query = f"resources1=VCPU:1&{key}={value}&resources=VCPU:1"
    parse(query, (1, since))
    fails(query, Invalid, f"'{key}' does not match any of the regexes", (1, since - 1))


def test_error_for_an_unknown_key_lists_the_keys() -> None:
    with pytest.raises(Invalid) as raised:
        parse(f"{ONE}&isolated=_1", (1, 39))
    assert str(raised.value).endswith(
        "  The keys of a group are in_tree, member_of, required, resources, each followed by the suffix of"
        " the group; the keys of the whole request are group_policy, limit, root_required, same_subtree."
    )


def test_error_for_an_unknown_key_lists_the_other_keys_of_the_endpoint() -> None:
    pairs = [("resources", "VCPU:1"), ("withuot", A)]
    for parse_pairs, keys in (
        (partial(parse_fits, version=(1, 39)), ["group_by", "limit", "marker", "max", "without"]),
        (
            partial(parse_request, version=(1, 39), extended=True, other_keys=OWN_KEYS),
            ["relaxations", "root"],
        ),
    ):
        with pytest.raises(Invalid) as raised:
            parse_pairs(pairs)
        listed = str(raised.value).partition("the keys of the whole request are ")[2].rstrip(".").split(", ")
        assert {*keys, "order_by"} <= set(listed)
        assert listed == sorted(set(listed))


@pytest.mark.parametrize(
    ("query", "any_of", "forbidden"),
    [
        (f"&root_member_of={A}", [{A}], set()),
        (f"&root_member_of=in:{A},{B}&root_member_of={A}", [{A, B}, {A}], set()),
        (f"&root_member_of=!{A}&root_member_of=!in:{A},{B}", [], {A, B}),
        (f"&root_member_of=%20!{A}", [], {A}),
    ],
)
def test_root_member_of(query: str, any_of: list[set[str]], forbidden: set[str]) -> None:
    expected = Membership(tuple(map(frozenset, any_of)), frozenset(forbidden))
    assert parse(ONE + query, extended=True).root_member_of == expected


@pytest.mark.parametrize("value", ["", "!", "in:", f"{A},{B}", f"in:{A},", f"!!{A}", f"in:!{A}", "x"])
def test_bad_root_member_of(value: str) -> None:
    with pytest.raises(BadQueryValue, match="Expected 'root_member_of' to be the uuid of an aggregate"):
        parse(f"{ONE}&root_member_of={value}", extended=True)


def test_root_member_of_is_an_extension() -> None:
    fails(f"{ONE}&root_member_of={A}", Invalid, "'root_member_of' does not match any of the regexes")


@pytest.mark.parametrize(
    ("query", "in_tree", "not_in_tree"),
    [
        (f"in_tree=!{A}", None, {A}),
        (f"in_tree=!in:{A},%20{B}", None, {A, B}),
        (f"in_tree=!{A}&in_tree={A}&in_tree=!in:{B}&in_tree={B}", B, {A, B}),
    ],
)
def test_in_tree_with_excluded_trees(query: str, in_tree: str | None, not_in_tree: set[str]) -> None:
    (group,) = parse(f"{ONE}&{query}", extended=True).groups
    assert (group.in_tree, group.not_in_tree) == (in_tree, not_in_tree)


@pytest.mark.parametrize("value", ["!", "!!" + A, f"!{A},{B}", f"!in:{A},", "!in:", f"!in:!{A}", "!x"])
def test_bad_excluded_tree(value: str) -> None:
    with pytest.raises(BadQueryValue, match="Expected 'in_tree_A' to exclude the tree of a provider"):
        parse(f"resources_A=VCPU:1&in_tree_A={value}", extended=True)


def test_in_tree_has_no_set_of_allowed_trees() -> None:
    with pytest.raises(Invalid, match="Expected 'in_tree' parameter to be a format of uuid"):
        parse(f"{ONE}&in_tree=in:{A}", extended=True)


def test_excluded_trees_are_an_extension() -> None:
    fails(f"{ONE}&in_tree=!{A}", Invalid, "Expected 'in_tree' parameter to be a format of uuid")
