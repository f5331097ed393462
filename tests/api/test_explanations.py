"""Explanations of one host, and the bound on the roots that an explanation covers."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, note, settings

from placement_svc.db.explanation import patterns
from placement_svc.domain.combining import candidates
from tests.conftest import ADMIN, Api, LoadCloud, NewApp, examples
from tests.support.cloud import Cloud, read, uuid_of, without_consumers
from tests.support.explanation_oracle import Explainer, roots_of
from tests.support.nearest_oracle import NearestOracle, add_has
from tests.support.oracle import Request
from tests.support.relaxation_oracle import RelaxationOracle
from tests.support.statements import count_statements
from tests.support.strategies import scenarios
from tests.support.summary_oracle import SummaryOracle

PATH = "/allocation_candidates/explanation"
FAST = "HW_CPU_X86_AVX2"


def counts(body: dict[str, Any]) -> Iterator[tuple[Any, int]]:
    """Yield every count of an explanation with its place."""
    for group in [*body["groups"], {"suffix": None, "filters": body["tree"]}]:
        for entry in group["filters"]:
            for name in ("alone", "left", "sole_blocker"):
                yield (group["suffix"], entry["code"], entry["query"], name), entry[name]
    for name, count in body["roots"]["by_first_failure"].items():
        yield name, count
    yield "with_candidates", body["roots"]["with_candidates"]
    yield "total", body["roots"]["total"]


@pytest.mark.parametrize("key", ["member_of", "in_tree"])
def test_repeated_exclusion_is_shown_as_it_was_sent(api: Api, load_cloud: LoadCloud, key: str) -> None:
    load_cloud(read("h{VCPU8}"))
    excluded = f"{key}=!{uuid_of('g')}"
    body = api("GET", f"{PATH}?resources=VCPU:1&{excluded}&{excluded}").json
    assert body["groups"][0]["filters"][-1]["query"] == excluded


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(15),
)
@given(scenario=scenarios())
def test_counts_of_all_hosts_add_up_to_those_of_the_cloud(
    api: Api,
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
) -> None:
    clean_database()
    loaded, requests = scenario
    load_cloud(loaded)
    for request in requests[:2]:
        cloud = without_consumers(loaded, request.ignore_consumer)
        note(f"cloud: {cloud}\nrequest: {request}")
        total = Counter[Any]()
        for root in roots_of(cloud):
            body = api("GET", f"{PATH}?{request.query()}&root={root.name}").json
            assert body.pop("root") == {"uuid": root.uuid, "name": root.name}
            assert not SummaryOracle(cloud, request, [root], body).untrue()
            del body["summary"]
            explainer = Explainer(cloud, request, [root])
            expected, nearest = explainer.explain(), NearestOracle(explainer).nearest()
            add_has(expected, nearest)
            assert body.pop("nearest") == nearest
            assert body.pop("complete")
            assert body.pop("relaxations") == RelaxationOracle(cloud, request, [root]).relaxations()
            assert body == expected
            total.update(dict(counts(body)))
        whole = api("GET", f"{PATH}?{request.query()}").json
        assert +total == +Counter(dict(counts(whole)))


def test_explanation_covers_the_first_roots_by_uuid(
    new_app: NewApp, app: Flask, load_cloud: LoadCloud
) -> None:
    load_cloud(read("a{VCPU8}; b{VCPU8}; c{VCPU8}"))
    names = sorted("abc", key=uuid_of)
    client = new_app(explanation_roots=2).test_client()

    body = client.get(f"{PATH}?resources=VCPU:1&in_tree={uuid_of(names[2])}", headers=ADMIN).json

    assert body["roots"]["total"] == 2
    assert body["roots"]["more"]
    assert body["roots"]["with_candidates"] == 0
    assert body["has_candidates"]
    assert body["kind"] is None
    within = client.get(f"{PATH}?resources=VCPU:1&in_tree={uuid_of(names[1])}", headers=ADMIN).json
    assert within["roots"]["with_candidates"] == 1
    assert within["relaxations"] == [{"without": f"in_tree={uuid_of(names[1])}", "roots": 3}]
    lower = client.get(f"{PATH}?resources=VCPU:9", headers=ADMIN).json
    assert lower["relaxations"] == [{"instead": "resources=VCPU:8", "roots": 3}]
    assert [each["root"]["name"] for each in lower["nearest"]] == names[:2]


def test_relaxation_that_the_search_refuses_is_left_out(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MAX_TRIED_SUPPLIERS", 1000)
    load_cloud(read("a{MEMORY_MB1}; " + "; ".join(f"a{number}<a{{VCPU100}}" for number in range(16))))
    groups = "&".join(f"resources{number}=VCPU:{34 + number % 5}" for number in range(33))
    query = f"{groups}&group_policy=none"
    assert api("GET", f"/allocation_candidates?{query}&limit=1").status_code == 400
    response = api("GET", f"{PATH}?{query}&required0={FAST}")
    assert (response.status_code, response.json["has_candidates"]) == (200, False)
    assert f"required0={FAST}" not in [each.get("without") for each in response.json["relaxations"]]


@pytest.mark.parametrize("digits", [300, 400, 4000])
def test_amount_that_exceeds_a_double_precision_is_explained(
    api: Api, load_cloud: LoadCloud, digits: int
) -> None:
    load_cloud(read("a{VCPU8}; b{VCPU4}; c{}"))
    amount = "1" + "0" * digits

    # orjson reads no such number.
    body = json.loads(api("GET", f"{PATH}?resources=VCPU:{amount}").data)

    assert {each["root"]["name"] for each in body["nearest"]} == {"a", "b", "c"}
    assert body["relaxations"] == [{"instead": "resources=VCPU:8", "roots": 1}]
    assert api("GET", f"/console/ask?resources=VCPU:{amount}").status_code == 200


def test_a_missing_inventory_is_one_failing_filter(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{}; a<h{VCPU8}; b<h{VCPU4 DISK_GB2}"))

    body = api("GET", f"{PATH}?resources1=VCPU:8,DISK_GB:4").json

    [near] = body["nearest"]
    [failing] = near["fails"]
    assert (failing["code"], failing["resource_class"], failing["provider"]["name"]) == (
        "inventory",
        "DISK_GB",
        "a",
    )


def test_a_filter_that_is_given_twice_fails_twice(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{}; a<h{VCPU8}; b<h{DISK_GB8}"))
    subtree = "same_subtree=_A,_B"

    body = api("GET", f"{PATH}?resources_A=VCPU:8&resources_B=DISK_GB:8&{subtree}&{subtree}&root=h").json

    failing = [each["query"] for each in body["tree"] if each.get("has", "") is None]
    assert failing == [subtree, subtree]


def test_summary_of_a_host_says_what_its_whole_tree_lacks(api: Api, load_cloud: LoadCloud) -> None:
    """The host itself fails the fewest filters, as it has no such class, but its node has it."""
    load_cloud(read("h{DISK_GB8}; a<h{VCPU8 used8}"))

    body = api("GET", f"{PATH}?resources_A=VCPU:2&root=h").json

    assert [each["code"] for each in body["nearest"][0]["fails"]] == ["inventory"]
    assert "0 of 2 VCPU are free" in body["summary"]
    assert "has no VCPU" not in body["summary"]


def test_smallest_gap_decides_between_providers_that_fail_equally_many_filters(
    api: Api, load_cloud: LoadCloud
) -> None:
    load_cloud(read("h{}; a<h{VCPU8 used8 max4}; b<h{VCPU7}"))

    body = api("GET", f"{PATH}?resources=VCPU:8").json

    [near] = body["nearest"]
    assert [(each["code"], each["best"], each["provider"]["name"]) for each in near["fails"]] == [
        ("capacity", 7, "b"),
        ("free", 7, "b"),
    ]


def test_an_inventory_that_allows_no_amount_is_as_far_as_a_missing_one(
    api: Api, load_cloud: LoadCloud
) -> None:
    load_cloud(read("none{VCPU4 max4 step8}; few{VCPU4 max3}; few1<few{VCPU4 max4 step8}"))

    nearest = api("GET", f"{PATH}?resources_A=VCPU:4").json["nearest"]

    fails = [(each["root"]["name"], [one["best"] for one in each["fails"]]) for each in nearest]
    assert fails == [("few", [3]), ("none", [None])]
    assert nearest[0]["fails"][0]["provider"]["name"] == "few"


def test_a_pair_may_remove_a_group_with_the_same_subtree_that_names_it(
    api: Api, load_cloud: LoadCloud
) -> None:
    load_cloud(read("a; a1<a{VCPU4}; b{VCPU4}"))
    needed, subtree = "required_N=HW_NUMA_ROOT", "same_subtree=_A,_N"

    request = f"{PATH}?resources_A=VCPU:1&{needed}&{subtree}"

    assert api("GET", request).json["relaxations"] == [{"without": [needed, subtree], "roots": 2}]
    assert api("GET", f"{request}&group_policy=isolate").json["relaxations"] == [
        {"without": [needed, subtree], "roots": 2}
    ]
    assert api("GET", f"{request}&isolate=_N").json["relaxations"] == []
    assert api("GET", f"{request}&same_subtree=_N").json["relaxations"] == []


@pytest.mark.usefixtures("no_kept_counts")
def test_number_of_statements_does_not_depend_on_the_cloud(
    app: Flask, api: Api, load_cloud: LoadCloud, clean_database: Callable[[], None]
) -> None:
    query = "resources1=VCPU:1&resources2=VCPU:9&group_policy=isolate"
    numbers = []
    for size in (2, 20):
        clean_database()
        load_cloud(read("; ".join(f"h{n}{{VCPU8}}; c{n}<h{n}{{VCPU10 used4}}" for n in range(size))))
        numbers.append(count_statements(app, lambda: api("GET", f"{PATH}?{query}")))
    assert numbers[0] == numbers[1]


def test_deadline_ends_an_explanation(new_app: NewApp, app: Flask, load_cloud: LoadCloud) -> None:
    load_cloud(read("; ".join(f"h{n}{{VCPU{n + 1}}}" for n in range(20))))
    query = "&".join(f"resources{n}=VCPU:{n + 1}" for n in range(20)) + "&group_policy=none"

    response = new_app(request_deadline=0.001).test_client().get(f"{PATH}?{query}", headers=ADMIN)

    assert response.status_code == 503, response.json


def test_explanation_of_groups_with_many_common_classes(
    api: Api, call: Callable[..., Any], load_cloud: LoadCloud
) -> None:
    """An explanation reads more values of a provider than PostgreSQL takes as arguments of a function."""
    load_cloud(read("a{VCPU8}; b<a{VCPU4}"))
    names = [f"CUSTOM_{number}" for number in range(60)]
    for name in names:
        call("PUT", f"/resource_classes/{name}")
    inventory = {name: {"total": 4} for name in names}
    path = f"/resource_providers/{uuid_of('b')}/inventories"
    body = call("GET", path)
    call("PUT", path, body | {"inventories": inventory})
    resources = ",".join(f"{name}:2" for name in names)

    explained = call("GET", f"{PATH}?resources1={resources}&resources2={resources}&group_policy=none")

    assert explained["roots"]["with_candidates"] == 1


def test_explanation_of_many_amounts(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its conditions need more words than PostgreSQL takes as arguments of a function."""
    load_cloud(read("a{VCPU8 MEMORY_MB8 DISK_GB8 VGPU8 PCPU8}"))
    monkeypatch.setattr(patterns, "WORD_BITS", 1)
    names = ("VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "PCPU")
    groups = "&".join(
        f"resources{number}={','.join(f'{name}:{number}' for name in names)}" for number in range(1, 22)
    )

    response = api("GET", f"{PATH}?{groups}&group_policy=none")

    assert response.status_code == 200, response.text
    assert response.json["roots"]["with_candidates"] == 0


@pytest.mark.parametrize(
    ("cloud", "filters", "kind"),
    [
        ("h1{VCPU8}; h2{DISK_GB8}", "", "combination"),
        ("h1{VCPU8 used8}; h2{DISK_GB8 used8}", "", "combination"),
        (
            f"h1{{VCPU8,DISK_GB8}}#{FAST}; h2{{VCPU8,DISK_GB8}}",
            f"&required_A={FAST}&required_B=!{FAST}",
            "combination",
        ),
        ("h1{VCPU8}; h2{DISK_GB8}", f"&root_required={FAST}", "filtered"),
        (f"h1{{VCPU8}}#{FAST}; h2{{DISK_GB8}}", f"&root_required={FAST}", "filtered"),
        ("h1{VCPU8}; h2{DISK_GB8}", f"&required_B={FAST}", "filtered"),
    ],
)
def test_kind_if_no_host_suits_all_groups(
    api: Api, load_cloud: LoadCloud, cloud: str, filters: str, kind: str
) -> None:
    load_cloud(read(cloud))
    query = f"resources_A=VCPU:1&resources_B=DISK_GB:1{filters}"
    body = api("GET", f"{PATH}?{query}&group_policy=none").json
    assert body["kind"] == kind


def test_root_may_be_a_uuid_in_capitals(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{VCPU1}; other{VCPU1}"))
    path = f"{PATH}?resources=VCPU:2&root="
    body = api("GET", f"{path}{uuid_of('h').upper()}").json
    assert body["root"] == {"uuid": uuid_of("h"), "name": "h"}
    # A uuid goes before a name, and a name has the letter case in which it was sent.
    for name in (uuid_of("h").upper(), "NAME"):
        assert api("POST", "/resource_providers", {"name": name}).status_code == 200
    assert api("GET", f"{path}{uuid_of('h').upper()}").json["root"]["name"] == "h"
    assert api("GET", f"{path}NAME").json["root"]["name"] == "NAME"
    assert api("GET", f"{path}name").status_code == 404
