"""The commands that query a running service: answers, formats, exit statuses and errors."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from placement_svc.cli import main
from placement_svc.client.service_client import ServiceClient
from placement_svc.commands import find
from placement_svc.commands.query import query_command
from placement_svc.commands.report import Report
from tests.conftest import Api, LoadCloud, NewApp, served
from tests.support.cloud import read, uuid_of
from tests.support.servers import responding
from tests.support.service import wait_until
from tests.support.terminal import on_terminal

WAIT_SECONDS = 30
CLOUD = """
    cn1{MEMORY_MB1024 DISK_GB100}#COMPUTE_NODE@rack; n11<cn1{VCPU8 used6}#HW_NUMA_ROOT; n12<cn1{VCPU8};
    cn2{MEMORY_MB1024}@rack; n21<cn2{VCPU4 ratio2.0}#HW_NUMA_ROOT; ss{DISK_GB900}$@rack
"""
SERVER, OTHER_SERVER = uuid_of("server"), uuid_of("other server")
REQUEST = "resources=VCPU:8&required=HW_NUMA_ROOT"
IMPOSSIBLE = "resources=VCPU:100"

Run = Callable[..., Result]


@pytest.fixture
def cloud(load_cloud: LoadCloud, call: Callable[..., Any]) -> None:
    """Two hosts with NUMA nodes, shared storage, and servers of two projects."""
    load_cloud(read(" ".join(CLOUD.split())))
    for server, project, allocations in (
        (SERVER, "blue", {"cn1": {"MEMORY_MB": 512}, "n12": {"VCPU": 1}, "ss": {"DISK_GB": 10}}),
        (OTHER_SERVER, "red", {"n12": {"VCPU": 2}}),
    ):
        body = {
            "allocations": {uuid_of(name): {"resources": amounts} for name, amounts in allocations.items()},
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
            "project_id": project,
            "user_id": "user",
        }
        call("PUT", f"/allocations/{server}", body)


@pytest.fixture
def run(live: str) -> Run:
    """A function that runs a command against the service."""

    def invoke(*arguments: str, **env: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"PLACEMENT_URL": live} | env)

    return invoke


def table_rows(result: Result) -> list[list[str]]:
    """Return the cells of all tables in the output of a command."""
    return [
        [cell.strip() for cell in line[1:-1].split("│")]
        for line in result.stdout.splitlines()
        if line.startswith("│")
    ]


def csv_rows(result: Result) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(result.stdout)))


def stale_reads(live: str) -> float:
    """Return how many reads of the service have allowed stale data."""
    with urlopen(f"{live}/metrics", timeout=WAIT_SECONDS) as response:
        text = response.read().decode()
    return sum(map(float, re.findall(r"^placement_stale_reads_total\{.*\} (\S+)$", text, re.M)))


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    "command",
    [
        ["why", "resources=VCPU:8"],
        ["why", "resources=VCPU:4", "--host", "n11"],
        ["fits", "resources=VCPU:8"],
        ["tree", "n11"],
        ["top"],
        ["top", "--by", "project"],
        ["who", "n12"],
        ["find", "HW_NUMA_ROOT"],
        ["find", uuid_of("n11")],
        ["find", SERVER],
        ["empty"],
    ],
    ids=str,
)
def test_stale_allows_a_standby_to_answer(run: Run, live: str, command: list[str]) -> None:
    before = stale_reads(live)
    current = run(*command)
    assert stale_reads(live) == before
    stale = run(*command, "--stale")
    assert stale_reads(live) > before
    assert (stale.exit_code, stale.stdout) == (current.exit_code, current.stdout)


def test_a_report_has_one_format(run: Run) -> None:
    refused = run("top", "--json", "--csv")
    assert refused.exit_code == 2
    assert "Choose one of --json and --csv." in refused.stderr


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["why", "resources=VCPU:8"], 0),
        (["why", IMPOSSIBLE], 1),
        (["why", "resources=VCPU:4", "--host", "n11"], 0),
        (["why", REQUEST, "--host", "cn1"], 1),
        (["why", "resources=NONE:1"], 2),
        (["why", "resources=VCPU:1", "--host", "unknown"], 2),
        (["tree", "n11"], 0),
        (["tree", uuid_of("cn1")], 0),
        (["tree", "unknown"], 1),
        (["tree", ""], 1),
        (["tree", uuid_of("nothing")], 1),
        (["top"], 0),
        (["top", "--class", "SRIOV_NET_VF"], 1),
        (["top", "--class", "NONE"], 2),
        (["top", "--by", "project", "--class", "MEMORY_MB"], 0),
        (["top", "--by", "project", "--class", "SRIOV_NET_VF"], 1),
        (["who", "n12"], 0),
        (["who", "cn2"], 1),
        (["who", "unknown"], 1),
        (["who", ""], 1),
        (["find", "HW_NUMA_ROOT"], 0),
        (["find", uuid_of("rack")], 0),
        (["find", "n1"], 0),
        (["find", "unknown"], 1),
        (["find", "UNKNOWN"], 1),
        (["find", uuid_of("nothing")], 1),
    ],
    ids=str,
)
def test_exit_status_tells_answers_from_errors(run: Run, command: list[str], status: int) -> None:
    result = run(*command)
    assert result.exit_code == status
    assert bool(result.stderr) == (status == 2)
    for option in ("--json", "--csv"):
        assert run(*command, option).exit_code == status
    if status < 2:
        json.loads(run(*command, "--json").stdout)
        assert len(run(*command, "--csv").stdout.splitlines()) >= 1


@pytest.mark.usefixtures("cloud")
def test_why_shows_summary_and_filters(run: Run, api: Api) -> None:
    result = run("why", REQUEST)
    body = api("GET", f"/allocation_candidates/explanation?{REQUEST}").get_json()
    assert result.stdout.startswith(body["summary"])
    shown = [row[1:6] for row in table_rows(result)]
    for each in body["groups"][0]["filters"]:
        numbers = [str(each[name]) for name in ("alone", "left", "sole_blocker")]
        assert [each["code"], each["query"], *numbers] in shown
    assert json.loads(run("why", REQUEST, "--json").stdout) == body
    assert [row["alone"] for row in csv_rows(run("why", REQUEST, "--csv"))] == [
        str(each["alone"]) for group in (body["groups"][0]["filters"], body["tree"]) for each in group
    ]


@pytest.mark.usefixtures("cloud")
def test_why_one_host_shows_what_it_has_and_the_best_amounts(run: Run, api: Api) -> None:
    """The nearest provider is n11, which has 2 VCPU free. n12 has 5, but not the trait."""
    request = "resources_A=VCPU:6&required_A=HW_NUMA_ROOT"
    body = api("GET", f"/allocation_candidates/explanation?{request}&root=cn1").get_json()
    entries = [*body["groups"][0]["filters"], *body["tree"]]
    rows = csv_rows(run("why", request, "--host", "cn1", "--csv"))
    assert rows == csv_rows(run("why", f"{request}&root=cn1", "--csv"))
    for name in ("wanted", "best", "sum_free", "has"):
        expected = [each.get(name) for each in entries]
        assert [row[name] for row in rows] == ["" if each is None else str(each) for each in expected]
    assert [(row["best"], row["has"]) for row in rows if row["filter"] == "free"] == [("5", "2")]
    assert [row[-1] for row in table_rows(run("why", request, "--host", "cn1")) if row[1:2] == ["free"]] == [
        "2"
    ]
    assert "has" not in csv_rows(run("why", request, "--csv"))[0]


@pytest.mark.usefixtures("cloud")
def test_fits_counts_how_often_the_request_fits(run: Run) -> None:
    result = run("fits", "resources_A=VCPU:2")
    assert result.exit_code == 0, result.stderr
    assert "Fits 7 times." in result.stdout
    assert json.loads(run("fits", "resources_A=VCPU:2", "--json").stdout)["fits"] == 7
    hosts = {row["host"]: row["fits"] for row in csv_rows(run("fits", "resources_A=VCPU:2", "--csv"))}
    assert hosts == {"cn1": "3", "cn2": "4"}
    assert "Fits 4 times." in run("fits", f"resources_A=VCPU:2&without={uuid_of('cn1')}").stdout
    assert run("fits", "resources_A=VCPU:100").exit_code == 1


def test_fits_lists_no_more_aggregates_than_the_limit(load_cloud: LoadCloud, run: Run) -> None:
    load_cloud(read("cn1{VCPU4}@rack,row; cn2{VCPU2}@rack,hall"))
    result = run("fits", "resources=VCPU:1&group_by=aggregate", "--limit", "2")
    assert [uuid_of(name) in result.stdout for name in ("rack", "row", "hall")] == [True, True, False]
    assert "More aggregates: raise --limit." in result.stdout
    assert "More aggregates" not in run("fits", "resources=VCPU:1&group_by=aggregate").stdout


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    ("maximum", "binding", "limit"),
    # The second count has all claims at cn1.
    [(2, "other", "end of the count"), (3, "VCPU", "VCPU")],
)
def test_fits_tells_what_is_free_when_counting_stops(
    run: Run, maximum: int, binding: str, limit: str
) -> None:
    request = f"resources_A=VCPU:2&max={maximum}"
    body = json.loads(run("fits", request, "--json").stdout)
    assert (body["fits"], body["bound"], body["binding"]) == (maximum, "lower", {binding: maximum})
    result = run("fits", request)
    assert f"Still free when counting stopped at {maximum}: VCPU:" in result.stdout
    assert "unusable" not in result.stdout
    assert f"Limited by: {limit}:{maximum}\n" in result.stdout
    assert table_rows(result)[-1][-1] == limit
    [row] = csv_rows(run("fits", request, "--csv"))
    assert row["limited_by"] == binding


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("named", ["cn1", "n12", uuid_of("n11"), uuid_of("n11").upper()])
def test_tree_shows_usage_traits_and_consumers(run: Run, named: str) -> None:
    output = run("tree", named).stdout
    assert f"cn1  {uuid_of('cn1')}" in output
    assert re.search(r"VCPU  █{15}░{5}   75%  6 of 8", output)
    assert re.search(r"MEMORY_MB  █{10}░{10}   50%  512 of 1,024", output)
    assert "traits: COMPUTE_NODE" in output
    assert f"aggregates: {uuid_of('rack')}" in output
    assert f"│ {SERVER} │ INSTANCE │ blue    │ " in output
    assert "DISK_GB:10" not in output
    assert uuid_of("n21") not in output
    of_node = next(row for row in csv_rows(run("tree", named, "--csv")) if row["provider"] == "n11")
    assert (of_node["parent_uuid"], of_node["capacity"], of_node["used"]) == (uuid_of("cn1"), "8", "6")


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("command", ["tree", "who"])
def test_host_is_found_by_its_whole_name_only(run: Run, api: Api, command: str) -> None:
    result = run(command, "contains:n1")
    assert (result.exit_code, result.stdout) == (
        1,
        "No resource provider has the name or uuid contains:n1. "
        "`placement-svc find` also searches for parts of names, and for consumers.\n",
    )
    for name in ("contains:n1", "contains:n11"):
        api("POST", "/resource_providers", {"name": name})
    assert "contains:n1" in run(command, "contains:n1").stdout
    assert "n11" not in run(command, "contains:n1").stdout


@pytest.mark.usefixtures("cloud")
def test_tree_counts_the_allocation_ratio(run: Run) -> None:
    assert "0 of 8" in run("tree", "cn2").stdout


@pytest.mark.usefixtures("cloud")
def test_top_ranks_hosts_by_the_used_part(run: Run) -> None:
    rows = csv_rows(run("top", "--csv"))
    assert [(row["host"], row["used"], row["capacity"]) for row in rows] == [
        ("cn1", "9", "16"),
        ("cn2", "0", "8"),
    ]
    [row] = table_rows(run("top", "--limit", "1"))[1:]
    assert row == ["cn1", uuid_of("cn1"), "█████░░░░░", "56%", "9 of 16"]


@pytest.mark.usefixtures("cloud")
def test_top_ranks_projects_by_their_usage(run: Run) -> None:
    rows = csv_rows(run("top", "--by", "project", "--csv"))
    assert [(row["project"], row["vcpu"]) for row in rows][-2:] == [("red", "2"), ("blue", "1")]
    assert "DISK_GB:10" in rows[-1]["all_usages"]


@pytest.mark.usefixtures("cloud")
def test_who_lists_consumers_by_project(run: Run) -> None:
    result = run("who", "n12")
    rows = table_rows(result)
    assert ["blue", "1", "MEMORY_MB:512, VCPU:1"] in rows
    assert ["red", "1", "VCPU:2"] in rows
    assert ["blue", SERVER, "INSTANCE", "MEMORY_MB:512, VCPU:1"] in rows
    document = json.loads(run("who", "n12", "--json").stdout)
    assert document["root"] == {"uuid": uuid_of("cn1"), "name": "cn1"}
    assert {"project_id": "red", "consumers": 1, "usages": {"VCPU": 2}} in document["projects"]


@pytest.mark.usefixtures("cloud")
def test_who_reads_all_pages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    all_rows = run("who", "cn1", "--csv").stdout
    monkeypatch.setattr("placement_svc.commands.query.PAGE_SIZE", 1)
    assert run("who", "cn1", "--csv").stdout == all_rows


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    ("text", "match", "names"),
    [
        ("HW_NUMA_ROOT", "trait", ["n11", "n21"]),
        (uuid_of("rack"), "aggregate", ["cn1", "cn2", "ss"]),
        (uuid_of("n11"), "uuid", ["n11"]),
        (SERVER, "consumer", ["cn1", "n12", "ss"]),
        ("n1", "name", ["cn1", "n11", "n12"]),
    ],
)
def test_find_names_all_providers(run: Run, text: str, match: str, names: list[str]) -> None:
    rows = csv_rows(run("find", text, "--csv"))
    assert [(row["match"], row["provider"]) for row in rows] == [(match, name) for name in names]
    assert {row["provider"]: row["uuid"] for row in rows} == {name: uuid_of(name) for name in names}
    [found] = filter(None, json.loads(run("find", text, "--json", "--limit", "1").stdout).values())
    assert [provider["name"] for provider in found] == names[:1]
    assert (f"raise --limit, which is {len(names) - 1}" in run("find", text, "--limit", "1").stdout) == (
        len(names) == 2
    )


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("form", ["{}", "{{{}}}", "urn:uuid:{}"])
@pytest.mark.parametrize("change", [str, str.upper, lambda text: text.replace("-", "")])
def test_find_knows_uuids_in_any_form(run: Run, api: Api, form: str, change: Callable[[str], str]) -> None:
    def written(name: str) -> str:
        return form.format(change(uuid_of(name)))

    body = api("GET", f"/resource_providers/{uuid_of('cn2')}/aggregates").get_json()
    api("PUT", f"/resource_providers/{uuid_of('cn2')}/aggregates", body | {"aggregates": [written("new")]})
    for name, match in (
        ("new", ("aggregate", "cn2")),
        ("rack", ("aggregate", "cn1")),
        ("n11", ("uuid", "n11")),
    ):
        rows = csv_rows(run("find", written(name), "--csv"))
        assert match in [(row["match"], row["provider"]) for row in rows]
    assert run("tree", written("n11"), "--json").stdout == run("tree", uuid_of("n11"), "--json").stdout


@pytest.mark.usefixtures("cloud")
def test_find_shows_a_consumer_with_more_providers_than_a_query_may_list(
    run: Run, new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [("find", SERVER, *options) for options in ((), ("--limit", "2"), ("--limit", "1"), ("--json",))]
    at_once = [run(*call).stdout for call in calls]
    with served(new_app(max_items=2)) as url:
        refused = run("find", SERVER, PLACEMENT_URL=url)
        assert (refused.exit_code, "'uuid' lists more than 2 items" in refused.stderr) == (2, True)
        monkeypatch.setattr(find, "BATCH_SIZE", 2, raising=False)
        assert [run(*call, PLACEMENT_URL=url).stdout for call in calls] == at_once


@pytest.mark.usefixtures("cloud")
def test_find_tries_a_text_that_only_resembles_a_uuid(run: Run, api: Api) -> None:
    name = f"{'_'.join('abcdef')}{'0' * 21}"
    api("POST", "/resource_providers", {"name": name})
    [row] = csv_rows(run("find", name, "--csv"))
    assert (row["match"], row["provider"]) == ("name", name)


@pytest.mark.usefixtures("cloud")
def test_empty_lists_searches_without_candidates(run: Run, api: Api) -> None:
    sent = f"req-{uuid4()}"
    unknown = run("empty", "--request-id", sent)
    assert (unknown.exit_code, unknown.stdout) == (0, f"No stored search has the request id {sent}.\n")
    api("GET", f"/allocation_candidates?{IMPOSSIBLE}", headers={"X-Openstack-Request-Id": sent}).close()
    wait_until(lambda: run("empty", "--request-id", sent, "--json").exit_code == 1)
    listed = run("empty", "--request-id", sent)
    assert listed.exit_code == 1
    assert sent in listed.stdout
    assert IMPOSSIBLE in listed.stdout
    [row] = csv_rows(run("empty", "--request-id", sent, "--csv"))
    assert row["query"] == IMPOSSIBLE
    assert f"{row['created_at'][:19]}Z" in listed.stdout
    # The stored query can be explained without a change.
    assert run("why", row["query"]).exit_code == 1


@pytest.mark.usefixtures("cloud")
def test_empty_tells_that_there_are_more(run: Run, api: Api) -> None:
    sent = f"req-{uuid4()}"
    for _ in range(2):
        api("GET", f"/allocation_candidates?{IMPOSSIBLE}", headers={"X-Openstack-Request-Id": sent}).close()
    command = ["empty", "--request-id", sent]
    wait_until(lambda: len(csv_rows(run(*command, "--csv"))) == 2)
    note = "There are more: raise --limit, which is 1."
    assert note in run(*command, "--limit", "1").stdout
    assert "There are more" not in run(*command, "--limit", "2").stdout


NAME = "evil\x1b[31m\x9b0m\n\u202e[red]:smile:"


@pytest.mark.parametrize("output", [[], ["--json"], ["--csv"]])
def test_no_name_reaches_the_terminal_unescaped(
    run: Run, call: Callable[..., Any], output: list[str]
) -> None:
    call("POST", "/resource_providers", {"name": NAME, "uuid": uuid_of("evil")})
    call(
        "PUT",
        f"/resource_providers/{uuid_of('evil')}/inventories",
        {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}},
    )
    body = {
        "allocations": {uuid_of("evil"): {"resources": {"VCPU": 1}}},
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
        "project_id": NAME,
        "user_id": NAME,
    }
    call("PUT", f"/allocations/{SERVER}", body)
    for command in (
        ["tree", uuid_of("evil")],
        ["top"],
        ["top", "--by", "project"],
        ["who", NAME],
        ["who", f"{NAME}\x1b"],
        ["find", "evil"],
        ["why", "resources=VCPU:9"],
        ["why", "resources=VCPU:9", "--host", NAME],
        ["why", "resources=VCPU:9", "--host", f"{NAME}\x1b"],
    ):
        result = run(*command, *output)
        shown = result.stdout + result.stderr
        assert all(line.isprintable() for line in shown.split("\n")), (command, shown)
        if command[0] in ("tree", "top") and output != ["--json"]:
            assert "evil\\x1b[31m\\x9b0m\\n\\u202e[red]:smile:" in shown


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("columns", [40, 80])
def test_uuids_are_whole_on_a_terminal(live: str, columns: int) -> None:
    for command in (
        ["tree", "cn1"],
        ["top"],
        ["who", "cn1"],
        ["find", "HW_NUMA_ROOT"],
        ["find", uuid_of("rack")],
    ):
        shown = on_terminal(*command, "--url", live, columns=columns)
        expected = {"who": SERVER, "find": uuid_of("n11") if "HW_NUMA_ROOT" in command else uuid_of("ss")}
        assert expected.get(command[0], uuid_of("cn1")) in shown
        assert f"Waiting for {live}" in shown
        rows = [line for line in shown.split("\n") if line.startswith(("│ ", "┌"))]
        assert all(len(line) <= 80 for line in rows), shown


def test_nothing_is_cut_on_a_dumb_terminal(live: str, api: Api) -> None:
    name = f"{'n' * 100}-end"
    assert api("POST", "/resource_providers", {"name": name}).status_code == 200
    assert name in on_terminal("tree", name, "--url", live, columns=80, TERM="dumb")


@pytest.mark.parametrize("text", ["", " "])
def test_find_needs_a_text(run: Run, text: str) -> None:
    result = run("find", text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "The text to find is empty" in result.stderr


@pytest.mark.usefixtures("cloud")
def test_request_is_sent_as_a_query_string(run: Run) -> None:
    for request in (
        f"?{REQUEST}",
        f" '{REQUEST}' ",
        "resources=VCPU%3A8&required=HW_NUMA_ROOT",
        "resources=VCPU:8&limit=1",
    ):
        assert run("why", request).exit_code < 2
    assert "Got: 1#&" in run("why", "resources=VCPU:1#&limit=1").stderr.replace("1#.", "1#&")
    assert run("why", "resources=VCPU:1 é").exit_code == 2


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    "pasted",
    [
        f"http://placement:8778/allocation_candidates?{REQUEST}&limit=1000",
        f"GET /placement/allocation_candidates?{REQUEST} HTTP/1.1",
        f"/allocation_candidates/explanation?{REQUEST}#top",
        f"curl -H 'X-Auth-Token: x' 'http://placement/allocation_candidates?{REQUEST}'",
        "curl -G http://h/allocation_candidates -d resources=VCPU:8 --data-urlencode required=HW_NUMA_ROOT",
    ],
)
def test_request_may_be_a_url_or_a_curl_command(run: Run, pasted: str) -> None:
    for command in ("why", "fits"):
        expected = run(command, REQUEST, "--json")
        shown = run(command, pasted, "--json")
        assert (shown.exit_code, shown.stdout) == (expected.exit_code, expected.stdout)
        assert shown.exit_code < 2


@pytest.mark.usefixtures("cloud")
def test_largest_count_of_a_url_is_used(run: Run) -> None:
    query = "resources=VCPU:1&max=2"
    assert "Still free when counting stopped at 2" in run("fits", query).stdout
    assert run("fits", f"http://h/allocation_candidates/capacity?{query}").stdout == run("fits", query).stdout


@pytest.mark.parametrize("command", ["why", "find", "tree"])
def test_argument_that_is_not_text_is_an_error(run: Run, command: str) -> None:
    result = run(command, os.fsdecode(b"resources=\xff"))
    assert result.exit_code == 2
    assert "An argument is not valid UTF-8" in result.stderr


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("option", [[], ["--csv"]], ids=str)
def test_output_that_cannot_be_written_is_an_error(live: str, option: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "placement_svc.cli", "tree", "cn1", "--url", live, *option],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert result.returncode == 2
    assert result.stderr == "Error: The output cannot be written: No space left on device\n"


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("option", [[], ["--csv"], ["--json"]], ids=str)
@pytest.mark.parametrize(("host", "status"), [("cn1", 0), ("unknown", 1)])
def test_exit_status_tells_the_answer_if_the_output_is_closed(
    live: str, option: list[str], host: str, status: int
) -> None:
    command = [sys.executable, "-m", "placement_svc.cli", "tree", host, "--url", live, *option]
    result = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], check=False, stderr=subprocess.PIPE, text=True
    )
    assert (result.returncode, result.stderr) == (status, "")


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("option", [[], ["--csv"], ["--json"]], ids=str)
@pytest.mark.parametrize(("host", "status"), [("cn1", 0), ("unknown", 1)])
def test_exit_status_tells_the_answer_if_the_reader_has_ended(
    live: str, option: list[str], host: str, status: int
) -> None:
    command = [sys.executable, "-m", "placement_svc.cli", "tree", host, "--url", live, *option]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as closed:
        result = subprocess.run(command, check=False, stdout=closed, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (status, "")


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("option", [[], ["--csv"]], ids=str)
def test_output_escapes_what_the_encoding_lacks(live: str, api: Api, option: list[str]) -> None:
    api("POST", "/resource_providers", {"name": "caf\xe9-\u2603"})
    result = subprocess.run(
        [sys.executable, "-m", "placement_svc.cli", "find", "caf", "--url", live, *option],
        check=True,
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
    )
    assert b"caf\xe9-\\u2603" in result.stdout


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    ("command", "bar"), [(["top"], "#####....."), (["tree", "n11"], "###############.....")], ids=str
)
def test_bars_have_characters_of_the_encoding(live: str, command: list[str], bar: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "placement_svc.cli", *command, "--url", live],
        check=True,
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    output = result.stdout.decode("ascii")
    assert f" {bar} " in output
    assert "\\u" not in output


def test_service_that_does_not_respond_is_an_error(run: Run) -> None:
    result = run("top", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: http://127.0.0.1:1 does not respond (")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "placement"], "placement is not a service URL"),
        (["--url", "http://placement/?a=b"], "http://placement/?a=b is not a service URL: it must not"),
        (["--token", ""], "The token is empty"),
        (["--token", "a\nb"], "The token is empty or has characters that HTTP does not allow"),
        (["--token", "nobody"], "refuses this to the user of the token"),
        (
            ["--class", "vcpu"],
            "Invalid 'sort_by': '-ratio:vcpu'. Sort by used:CLASS,",
        ),
    ],
)
def test_errors_are_one_sentence(run: Run, arguments: list[str], message: str) -> None:
    result = run("top", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["why", "resource=VCPU:1"], "root_required, same_subtree"),
        (["fits", "resources=VCPU:1&max=0"], "Invalid 'max': '0'. It is a whole number of at least 1, with"),
    ],
)
def test_error_of_a_request_names_the_key_and_what_would_be_right(
    run: Run, arguments: list[str], end: str
) -> None:
    assert end in run(*arguments).stderr


def test_interrupted_query_has_the_status_of_a_signal() -> None:
    @query_command("wait")
    def wait(service: ServiceClient) -> Report:
        raise KeyboardInterrupt

    result = CliRunner().invoke(wait)
    assert (result.exit_code, result.output) == (130, "")


def test_refused_token_is_an_error(new_app: NewApp, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    CliRunner().invoke(
        main,
        ["token", "create", "--user", "u", "--project", "p", "--role", "reader"],
        env={"PLACEMENT_TOKEN_FILE": str(tokens)},
    )
    with served(new_app(auth="token", token_file=tokens)) as url:
        result = CliRunner().invoke(main, ["top", "--url", url, "--token", "wrong"])
    assert result.exit_code == 2
    assert "does not accept the token: name another one by --token or PLACEMENT_TOKEN" in result.stderr


def test_redirect_to_a_server_that_needs_the_token_is_an_error(run: Run) -> None:
    with responding(401) as (target, _):
        other = f"http://127.0.0.1:{target}"
        with responding(302, headers={"Location": f"{other}/capacity"}) as (port, _):
            result = run("top", "--url", f"http://127.0.0.1:{port}")
    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: http://127.0.0.1:{port} redirects to {other}, and the token is not sent to another server:"
        f" name {other} instead\n"
    )


def test_service_settings_ignore_the_variables_of_the_commands() -> None:
    env = {"PLACEMENT_URL": "http://placement.example.org", "PLACEMENT_TOKEN": "secret"}
    result = CliRunner().invoke(main, ["token", "list"], env=env)
    assert "PLACEMENT_TOKEN_FILE must name" in result.stderr
