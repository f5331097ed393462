"""The oracle agrees with the worked examples of `docs/spec/candidates.md 6`, and detects wrong responses."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings

from placement_svc.schemas.staleness import StaleQuery
from tests.support.cloud import Cloud, read, uuid_of
from tests.support.oracle import Group, Request, candidates, response_errors
from tests.support.query_keys import CANDIDATES, keys, without_suffix
from tests.support.strategies import clouds

P2 = read(
    "SS1{D1000}$@A; CN1{M1024 D1000}@A,B; CN2{M1024 D1000}@A;"
    "N11<CN1{V8}; N12<CN1{V8}; N21<CN2{V8}@B; N22<CN2{V8}"
)
P4 = read(
    "SS1{D1000}$@X; SS2{D1000}$@X; CN1{D1000}@X; CN2{D1000}@X;"
    "N11<CN1{V4}; N12<CN1{V4}; N21<CN2{V4}; N22<CN2{V4}"
)
P5 = read("A{V8 D1000}#MULTI,POOL; B{D1000}#MULTI; B1<B{V4}; B2<B{V4}#AVX2; E{V4 D9}")
P6 = read(
    "CN; N0<CN{V4 M2048}#NUMA; N1<CN{V4 M2048}#NUMA;"
    "F00<N0{FPGA1}#TYPE1; F10<N1{FPGA1}#TYPE1; F11<N1{FPGA1}#TYPE2"
)
S1 = read(
    "CN1; NIC1<CN1; NIC2<CN1; RP1<NIC1{VF16 used14}#NET1; RP2<NIC1{VF16 used14}#NET2;"
    "RP3<NIC2{VF16 used14}#NET1; RP4<NIC2{VF16 used14}#NET2"
)
T3 = read("CN; nic1<CN#ROOT; nic2<CN#ROOT; pf11<nic1{VF4}#NET1; pf12<nic1{VF4}#NET2")
F = read("ss1{D9}$@B; ss2{D9}$@C; cn1@A; cn2@B; n11<cn1{V9}@C; n12<cn1{V9}; n21<cn2{V9}; n22<cn2{V9}")
G = read("L{V8 M4096}@A; Md{V8 M4096}#TLS@A,B; Rt{V8 max3 M4096 D500}@B,C; D1{D1000}$#SSD@A; D2{D1000}$@A,B")
C = read("C1{V8 D50}#R@A; m1<C1{M1}; C2{V8}; m2<C2{M1}@A; SS{D1000}$#SSD@A; SX{D1000}$; S3{D1000 IP10}$@A")
S = read("cn1{V24}@A; cn2{V24 D2000}@A; ss{D2000}$@A; pf11<cn1{VF8}; pf12<cn1{VF8}; pf21<cn2{VF8}")
D3 = read("T{M9}; S<T{D9}$@A; CN{V9}@A")
UNITS = read("a{V8 min2}; b{V8 max2}; c{V8 step3}; d{V8 used6}; e{V8 res5}; f{V2 ratio1.5}; g{V1 used5}")


def group(
    suffix: str = "", required: str = "", member_of: str = "", in_tree: str | None = None, **resources: int
) -> Group:
    """Return a group; in a filter, the word `!X` is forbidden, `X` and `X,Y` (any of them) are required."""
    traits, aggregates = required.split(), member_of.split()
    return Group(
        suffix=suffix,
        resources=resources,
        required=tuple(frozenset(word.split(",")) for word in traits if word[0] != "!"),
        forbidden=frozenset(word[1:] for word in traits if word[0] == "!"),
        member_of=tuple(frozenset(word.split(",")) for word in aggregates if word[0] != "!"),
        not_member_of=frozenset(word[1:] for word in aggregates if word[0] == "!"),
        in_tree=in_tree,
    )


def same(*suffixes: str) -> dict[str, Any]:
    return {"same_subtree": (frozenset(suffixes),)}


@pytest.mark.parametrize(
    ("cloud", "groups", "rest_of_request", "expected"),
    [
        (
            P2,
            [group(V=1, M=512, D=500, member_of="B")],
            {},
            ["CN1(D:500,M:512)+N11(V:1)", "CN1(D:500,M:512)+N12(V:1)"],
        ),
        (
            P2,
            [group(V=1, M=512, D=500, member_of="!B")],
            {},
            ["CN2(D:500,M:512)+N22(V:1)", "CN2(M:512)+N22(V:1)+SS1(D:500)"],
        ),
        (P2, [group(V=1, member_of="B")], {}, ["N11(V:1)", "N12(V:1)", "N21(V:1)"]),
        (P2, [group("1", V=1, member_of="B")], {}, ["N21(V:1)"]),
        (P2, [group("1", V=1, member_of="A")], {}, []),
        (P4, [group(V=1, D=50, in_tree="N11")], {}, ["CN1(D:50)+N11(V:1)", "CN1(D:50)+N12(V:1)"]),
        (
            P4,
            [group("1", V=1, in_tree="CN1"), group("2", D=10, in_tree="SS1")],
            {"group_policy": "isolate"},
            ["N11(V:1)+SS1(D:10)", "N12(V:1)+SS1(D:10)"],
        ),
        (P4, [group(V=1, in_tree="nowhere")], {}, []),
        (
            P5,
            [group("1", V=1), group("2", D=100)],
            {"root_required": frozenset(["MULTI"]), "root_forbidden": frozenset(["POOL"])},
            ["B(D:100)+B1(V:1)", "B(D:100)+B2(V:1)"],
        ),
        (
            P6,
            [group("_C", V=1, M=256), group("_A", FPGA=1)],
            same("_C", "_A"),
            ["F00(FPGA:1)+N0(M:256,V:1)", "F10(FPGA:1)+N1(M:256,V:1)", "F11(FPGA:1)+N1(M:256,V:1)"],
        ),
        (
            P6,
            [
                group("_N", required="NUMA"),
                group("_1", FPGA=1, required="TYPE1"),
                group("_2", FPGA=1, required="TYPE2"),
            ],
            same("_N", "_1", "_2"),
            ["F10(FPGA:1)+F11(FPGA:1)"],
        ),
        (
            S1,
            [group("1", VF=2, required="NET1"), group("2", VF=2, required="NET1")],
            {},
            ["RP1(VF:2)+RP3(VF:2)"] * 2,
        ),
        (S1, [group(VF=4, required="NET1")], {}, []),
        (S1, [group(suffix, VF=1, required="NET1") for suffix in "1234"], {}, ["RP1(VF:2)+RP3(VF:2)"] * 6),
        (
            T3,
            [group("_A", VF=1), group("_B", VF=1), group("_N", required="ROOT")],
            {**same("_A", "_B", "_N"), "group_policy": "isolate"},
            ["pf11(VF:1)+pf12(VF:1)"] * 2,
        ),
        (
            T3,
            [group("_A", VF=1), group("_B", VF=1), group("_N", required="ROOT")],
            same("_A", "_B", "_N"),
            ["pf11(VF:1)+pf12(VF:1)"] * 2 + ["pf11(VF:2)", "pf12(VF:2)"],
        ),
        (F, [group(V=1, D=1, member_of="!B")], {}, ["n11(V:1)+ss2(D:1)", "n12(V:1)+ss2(D:1)"]),
        (F, [group("1", V=1, member_of="!C")], {}, ["n12(V:1)", "n21(V:1)", "n22(V:1)"]),
        (
            G,
            [group(V=2), group("1", V=1, M=1024)],
            {},
            ["L(M:1024,V:3)", "Md(M:1024,V:3)", "Rt(M:1024,V:3)"],
        ),
        (G, [group(V=3), group("1", V=1, M=1024)], {}, ["L(M:1024,V:4)", "Md(M:1024,V:4)"]),
        (G, [group("1", V=1), group("2", M=1)], {"group_policy": "isolate"}, []),
        (G, [group("1", V=1), group("2", D=100, member_of="C")], {}, ["Rt(D:100,V:1)"]),
        (
            G,
            [group("1", V=1), group("2", D=100, required="!SSD", member_of="A B,C")],
            {},
            ["D2(D:100)+L(V:1)", "D2(D:100)+Md(V:1)", "D2(D:100)+Rt(V:1)"],
        ),
        (G, [group(V=1, D=1, required="TLS SSD")], {}, ["D1(D:1)+Md(V:1)"]),
        (
            G,
            [group(V=1, D=1, required="TLS,SSD !FOO")],
            {},
            ["D1(D:1)+L(V:1)", "D1(D:1)+Md(V:1)", "D2(D:1)+Md(V:1)"],
        ),
        (C, [group(D=100)], {"root_required": frozenset("R")}, ["S3(D:100)", "SS(D:100)"]),
        (C, [group(M=1, required="R")], {}, []),
        (C, [group(D=100, IP=1)], {}, ["S3(D:100,IP:1)", "S3(IP:1)+SS(D:100)"]),
        (
            C,
            [group("1", D=100), group("2", D=100)],
            {"group_policy": "isolate"},
            ["S3(D:100)+SS(D:100)"] * 2,
        ),
        (C, [group("1", V=1), group("2", D=10)], same("1", "2"), ["C1(D:10,V:1)"]),
        (C, [group("1", V=1), group("2", required="SSD")], same("2"), ["C1(V:1)", "C2(V:1)"]),
        (C, [group("1", V=1), group("2", required="SSD")], same("1", "2"), []),
        (S, [group(V=1)], {"version": "1.28"}, ["cn1(V:1)", "cn2(V:1)"]),
        (S, [group(V=1, VF=4)], {"version": "1.28"}, []),
        (
            S,
            [group(D=10, VF=4)],
            {"version": "1.28"},
            ["pf11(VF:4)+ss(D:10)", "pf12(VF:4)+ss(D:10)", "pf21(VF:4)+ss(D:10)"],
        ),
        (S, [group(V=1, VF=4)], {}, ["cn1(V:1)+pf11(VF:4)", "cn1(V:1)+pf12(VF:4)", "cn2(V:1)+pf21(VF:4)"]),
        (UNITS, [group(V=1)], {}, ["b(V:1)", "d(V:1)", "e(V:1)", "f(V:1)"]),
        (UNITS, [group(V=3)], {}, ["a(V:3)", "c(V:3)", "e(V:3)", "f(V:3)"]),
        (UNITS, [group(V=4)], {}, ["a(V:4)"]),
    ],
)
def test_worked_examples(
    cloud: Cloud, groups: list[Group], rest_of_request: dict[str, Any], expected: list[str]
) -> None:
    assert amounts(cloud, Request(tuple(groups), **rest_of_request)) == sorted(expected)


@pytest.mark.parametrize(
    ("cloud", "groups", "rest_of_request", "expected"),
    [
        (
            read("CN{V8}; p<CN{VF9}; q<CN{VF9}; r<CN{VF9}"),
            [group(V=1, VF=1), group("1", V=1)],
            {},
            ["CN(V:2)+p(VF:1)", "CN(V:2)+q(VF:1)", "CN(V:2)+r(VF:1)"],
        ),
        (
            read("CN1{V9}@A; CN2{V9}@A; SS{D9}$@A"),
            [group(D=1), group("1", V=1)],
            {},
            ["CN1(V:1)+SS(D:1)", "CN2(V:1)+SS(D:1)"],
        ),
        (D3, [group(V=1, D=1)], {}, ["CN(V:1)+S(D:1)"]),
        (read("pf{VF2 used1}"), [group("1", VF=1), group("2", VF=1)], {}, []),
        (read("a{V9}; b<a#X"), [group("1", V=1), group("2", required="!X")], same("2"), ["a(V:1)"]),
        (read("a{V9}; b<a#X; c{V9}"), [group("1", V=1), group("2", in_tree="b")], same("2"), ["a(V:1)"] * 2),
    ],
    ids=["D1", "D2", "D3", "D4", "D5", "D6"],
)
def test_contract_where_the_reference_has_a_defect(
    cloud: Cloud, groups: list[Group], rest_of_request: dict[str, Any], expected: list[str]
) -> None:
    assert amounts(cloud, Request(tuple(groups), **rest_of_request)) == sorted(expected)


def amounts(cloud: Cloud, request: Request) -> list[str]:
    return sorted(str(replace(candidate, mappings=None)) for candidate in candidates(cloud, request))


def test_mappings_contain_every_group() -> None:
    request = Request(
        (group(V=1, M=1), group("_F", FPGA=1, required="TYPE2"), group("_N", required="NUMA")),
        **same("_N", "_F"),
    )
    mappings = {candidate.mappings for candidate in candidates(P6, request)}
    spread = [("N0",), ("N1",), ("N0", "N1")]
    assert mappings == {frozenset([("", found), ("_F", ("F11",)), ("_N", ("N1",))]) for found in spread}


def test_query_has_every_parameter() -> None:
    request = Request(
        groups=(
            group(V=1, M=2, required="A B,C !D", member_of="X Y,Z !W", in_tree="CN"),
            replace(group("_N", required="A"), not_in_tree=frozenset("GH")),
        ),
        root_required=frozenset("R"),
        root_forbidden=frozenset("Q"),
        root_any=(frozenset("ST"),),
        root_member_of=(frozenset("X"),),
        root_not_member_of=frozenset("W"),
        same_subtree=(frozenset(["_N"]),),
        group_policy="none",
        isolate=frozenset(["_N"]),
        limit=3,
        ignore_consumer=frozenset(["C"]),
        preferred=frozenset("P"),
        order_by="spread:V",
        can_split=frozenset("V"),
    )
    sent = {without_suffix(key) for key, _ in parse_qsl(request.query())}
    assert sent == keys(CANDIDATES) - StaleQuery().fields.keys()
    assert request.query() == "&".join(
        [
            "resources=V:1,M:2",
            "required=A,!D",
            "required=in:B,C",
            f"member_of={uuid_of('X')}",
            f"member_of=in:{uuid_of('Y')},{uuid_of('Z')}",
            f"member_of=!{uuid_of('W')}",
            f"in_tree={uuid_of('CN')}",
            "required_N=A",
            f"in_tree_N=!in:{uuid_of('G')},{uuid_of('H')}",
            "root_required=R,!Q",
            "root_required=in:S,T",
            f"root_member_of={uuid_of('X')}",
            f"root_member_of=!{uuid_of('W')}",
            "same_subtree=_N",
            "group_policy=none",
            "isolate=_N",
            "limit=3",
            f"ignore_consumer={uuid_of('C')}",
            "preferred=P",
            "order_by=spread:V",
            "can_split=V",
        ]
    )


@settings(deadline=None)
@given(clouds())
def test_notation_round_trip(cloud: Cloud) -> None:
    assert read(str(cloud)) == cloud


def test_notation_rejects_other_text() -> None:
    with pytest.raises(ValueError, match="not a provider: a b"):
        read("a b")


SMALL = read("a{V4 used1 ratio1.5 M9}#T@A; b<a; c<a{V1}; s{D9 res1}$@A")
A, SHARED = uuid_of("a"), uuid_of("s")


def small_request(version: str) -> Request:
    return Request((group(required="T" if version >= "1.17" else "", V=2, D=1),), version=version)


def correct_response(version: str) -> dict[str, Any]:
    """Return the response body for SMALL and `small_request(version)`."""
    entry: dict[str, Any] = {
        "allocations": {A: {"resources": {"V": 2}}, SHARED: {"resources": {"D": 1}}},
        "mappings": {"": [SHARED, A]},
    }
    if version < "1.34":
        del entry["mappings"]
    if version < "1.12":
        entry["allocations"] = [
            {"resource_provider": {"uuid": uuid}, **supplied}
            for uuid, supplied in entry["allocations"].items()
        ]
    classes = {"V": {"capacity": 6, "used": 1}, "M": {"capacity": 9, "used": 0}}
    summaries: dict[str, Any] = {
        A: {"resources": classes, "traits": ["T"]},
        SHARED: {"resources": {"D": {"capacity": 8, "used": 0}}, "traits": ["MISC_SHARES_VIA_AGGREGATE"]},
    }
    if version < "1.27":
        del classes["M"]
    if version < "1.17":
        del summaries[A]["traits"], summaries[SHARED]["traits"]
    if version >= "1.29":
        summaries[uuid_of("b")] = {"resources": {}, "traits": []}
        summaries[uuid_of("c")] = {"resources": {"V": {"capacity": 1, "used": 0}}, "traits": []}
        for uuid, summary in summaries.items():
            summary["parent_provider_uuid"] = A if uuid in (uuid_of("b"), uuid_of("c")) else None
            summary["root_provider_uuid"] = SHARED if uuid == SHARED else A
    return {"allocation_requests": [entry], "provider_summaries": summaries}


@pytest.mark.parametrize("version", ["1.10", "1.12", "1.17", "1.27", "1.29", "1.34", "1.39"])
def test_correct_response_has_no_errors(version: str) -> None:
    assert response_errors(SMALL, small_request(version), correct_response(version)) == []


def drop_candidate(response: dict[str, Any]) -> None:
    response["allocation_requests"].pop()


def repeat_candidate(response: dict[str, Any]) -> None:
    response["allocation_requests"] *= 2


def change_amount(response: dict[str, Any]) -> None:
    response["allocation_requests"][0]["allocations"][A]["resources"]["V"] = 3


def change_mapping(response: dict[str, Any]) -> None:
    response["allocation_requests"][0]["mappings"][""] = [A]


def repeat_in_mapping(response: dict[str, Any]) -> None:
    response["allocation_requests"][0]["mappings"][""] = [A, A, SHARED]


def drop_summary(response: dict[str, Any]) -> None:
    del response["provider_summaries"][uuid_of("b")]


def add_summary(response: dict[str, Any]) -> None:
    response["provider_summaries"][uuid_of("stranger")] = {}


def change_capacity(response: dict[str, Any]) -> None:
    response["provider_summaries"][A]["resources"]["V"]["capacity"] = 4


def drop_root(response: dict[str, Any]) -> None:
    del response["provider_summaries"][A]["root_provider_uuid"]


@pytest.mark.parametrize(
    ("break_response", "found"),
    [
        (drop_candidate, "0 candidates instead of 1"),
        (repeat_candidate, "returned too often: a(V:2)+s(D:1)"),
        (change_amount, "not a candidate, or returned too often: a(V:3)+s(D:1)"),
        (change_mapping, "not a candidate, or returned too often: a(V:2)+s(D:1) →a"),
        (repeat_in_mapping, "not a candidate, or returned too often: a(V:2)+s(D:1) →a,a,s"),
        (drop_summary, "no summary of b"),
        (add_summary, f"a summary of {uuid_of('stranger')}"),
        (change_capacity, "summary of a: "),
        (drop_root, "summary of a: "),
    ],
)
def test_error_is_detected(break_response: Callable[[dict[str, Any]], None], found: str) -> None:
    response = correct_response("1.39")
    break_response(response)
    assert found in "\n".join(response_errors(SMALL, small_request("1.39"), response))


TWINS = read("a{V4}; b{V4}; b1<b{V4}")


def response_with(names: str, also: str) -> dict[str, Any]:
    """Return the response to `V:1` in TWINS at 1.28, with summaries of the providers `names` and `also`."""
    summary = {"resources": {"V": {"capacity": 4, "used": 0}}, "traits": []}
    return {
        "allocation_requests": [
            {"allocations": {uuid_of(name): {"resources": {"V": 1}}}} for name in names.split()
        ],
        "provider_summaries": {uuid_of(name): summary for name in [*names.split(), *also.split()]},
    }


@pytest.mark.parametrize(
    ("limit", "names", "also", "right"),
    [
        (1, "a", "", True),
        (1, "b", "", True),
        (1, "b", "b1", True),
        (2, "a b1", "", True),
        (1, "a", "b", False),
        (1, "", "", False),
        (2, "a", "", False),
        (2, "a a", "", False),
        (2, "a b b1", "", False),
        (9, "a b b1", "", True),
    ],
)
def test_limited_response_holds_any_candidates(limit: int, names: str, also: str, right: bool) -> None:
    request = Request((group(V=1),), limit=limit, version="1.28")
    assert (response_errors(TWINS, request, response_with(names, also)) == []) is right
