"""Every command that osc-placement adds to `openstack`, at old and new microversions."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.clients.commands import ERRORS, NEWEST, OWNED, READS, WRITES, Output
from tests.support.cloud import load, read, uuid_of

pytest.importorskip("osc_placement", reason="needs the extra clients: pip install -e '.[clients]'")

from openstackclient.common.clientmanager import ClientManager
from openstackclient.shell import OpenStackShell
from osc_placement.plugin import make_client

# `openstack` caches one client per process. Here one process runs many commands, each with its own client.
ClientManager.placement = property(make_client)

NEGOTIATED = "1.29"
"""The microversion that osc-placement negotiates by default."""

CLOUD = read(
    "host{DISK_GB100 used20}@rack;"
    "numa0<host{VCPU8 used2 MEMORY_MB1024 used512}#HW_NUMA_ROOT,CUSTOM_FAST;"
    "numa1<host{VCPU8 MEMORY_MB1024}#HW_NUMA_ROOT;"
    "spare{}"
)

UUIDS = {
    name: uuid_of(name)
    for name in ("host", "numa0", "numa1", "spare", "new", "nobody", "rack", "row", "consumer")
}
"""The uuids that `{name}` stands for in commands and output."""

WITHOUT_OUTPUT = re.compile(
    "resource provider (inventory |trait |allocation )?delete|resource class (create|set|delete)"
    "|trait (create|delete)"
)
"""The commands that print nothing."""

Openstack = Callable[..., Output]


class CommandFailed(Exception):
    """The exit status of the command is not 0; the message is its standard error."""


def arguments(line: str, url: str, version: str) -> list[str]:
    access = ["--os-auth-type", "admin_token", "--os-endpoint", url, "--os-token", "admin"]
    form = [] if WITHOUT_OUTPUT.match(line) else ["-f", "json"]
    return [*access, "--os-placement-api-version", version, *shlex.split(line.format(**UUIDS)), *form]


def with_names(text: str) -> str:
    """Return output with names instead of uuids."""
    for name, uuid in UUIDS.items():
        text = text.replace(uuid, f"{{{name}}}")
    return text


@pytest.fixture
def openstack(service: str, capsys: pytest.CaptureFixture[str]) -> Openstack:
    """A function that runs `openstack` in this process and returns its output."""

    def run(line: str, version: str = NEWEST) -> Output:
        status = OpenStackShell().run(arguments(line, service, version))
        output, error = (with_names(text) for text in capsys.readouterr())
        if status:
            raise CommandFailed(error)
        return json.loads(output) if output else None

    return run


@pytest.fixture
def cloud(service: str, api: Callable[..., TestResponse]) -> None:
    """A host with two NUMA nodes and a consumer, custom names, and a provider without inventory."""

    def request(method: str, path: str, json: Any = None, headers: Any = None) -> tuple[int, Any]:
        response = api(method, path, json, headers={"X-Roles": "admin,service"} | (headers or {}))
        return response.status_code, response.json if response.data else None

    for path in ("/traits/CUSTOM_FAST", "/traits/CUSTOM_UNUSED", "/resource_classes/CUSTOM_GOLD"):
        assert request("PUT", path) == (201, None)
    load(CLOUD, request)


def ordered(output: Output) -> Output:
    """Return output with its rows sorted, because their order is not defined."""
    return sorted(output, key=json.dumps) if isinstance(output, list) else output


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("version", "line", "output"), READS)
def test_a_reading_command(openstack: Openstack, version: str, line: str, output: Output) -> None:
    assert ordered(openstack(line, version)) == ordered(output)


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("version", "line", "output", "read_line", "read_output"), WRITES)
def test_a_writing_command(
    openstack: Openstack, version: str, line: str, output: Output, read_line: str, read_output: Output
) -> None:
    assert ordered(openstack(line, version)) == ordered(output)
    assert ordered(openstack(read_line)) == ordered(read_output)


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("line", "error"), ERRORS)
def test_a_failing_command(openstack: Openstack, line: str, error: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        openstack(line)
    assert error in str(failed.value)


@pytest.mark.parametrize("version", ["1.2", NEWEST])
def test_a_resource_class_is_created_and_deleted(openstack: Openstack, version: str) -> None:
    standard = openstack("resource class list", version)
    assert standard[0] == {"name": "VCPU"}
    openstack("resource class create CUSTOM_GOLD", version)
    assert openstack("resource class list", version) == [*standard, {"name": "CUSTOM_GOLD"}]
    openstack("resource class delete CUSTOM_GOLD", version)
    assert openstack("resource class list", version) == standard


def test_every_command_is_tested() -> None:
    tested = {line for table in (READS, WRITES) for _, line, *_ in table}
    tested |= {"resource class list", "resource class delete"}
    commands = {
        command.name.replace("_", " ")
        for command in entry_points(group="openstack.placement.v1")
        if command.dist and command.dist.name == "osc-placement"
    }
    assert commands
    assert {
        name for name in commands if not any(f"{line} ".startswith(f"{name} ") for line in tested)
    } == set()


def test_the_microversion_is_negotiated(openstack: Openstack) -> None:
    openstack("resource provider create new", version="1")
    # The error shows which microversion the client has negotiated.
    with pytest.raises(CommandFailed, match=f"version {NEGOTIATED}; requires at least version 1.39"):
        openstack("resource provider list --required CUSTOM_A,CUSTOM_B", version="1")


def test_the_command_in_a_new_process(service: str) -> None:
    def run(line: str) -> Output:
        command = [sys.executable, "-m", "openstackclient.shell", *arguments(line, service, NEWEST)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)

    created = run("resource provider create host")
    assert run("resource provider list") == [created]


def test_a_claim_from_candidates_to_deletion(openstack: Openstack) -> None:
    for line in (
        "trait create CUSTOM_FAST",
        "resource provider create host --uuid {host}",
        "resource provider create numa0 --uuid {numa0} --parent-provider {host}",
        "resource provider create numa1 --uuid {numa1} --parent-provider {host}",
        "resource provider inventory set {host} --resource DISK_GB=100",
        "resource provider inventory set {numa0} --resource VCPU=4 --resource VCPU:max_unit=2",
        "resource provider inventory set {numa1} --resource VCPU=4",
        "resource provider trait set {numa1} --trait CUSTOM_FAST",
        "resource provider aggregate set {host} --aggregate {rack} --generation 1",
    ):
        openstack(line)

    candidates = openstack(
        "allocation candidate list --resource DISK_GB=10 --member-of {rack}"
        " --group 1 --resource VCPU=3 --group 2 --resource VCPU=1 --forbidden CUSTOM_FAST"
        " --group-policy isolate"
    )
    assert {row["#"] for row in candidates} == {1}
    allocated = {row["resource provider"]: row["allocation"] for row in candidates}
    assert allocated == {"{host}": "DISK_GB=10", "{numa1}": "VCPU=3", "{numa0}": "VCPU=1"}

    claim = " ".join(f"--allocation rp={provider},{resources}" for provider, resources in allocated.items())
    openstack(f"resource provider allocation set {{consumer}} {claim} {OWNED} --consumer-type INSTANCE")
    assert openstack("resource usage show project") == [
        {"resource_class": "INSTANCE", "usage": {"DISK_GB": 10, "VCPU": 4, "consumer_count": 1}}
    ]
    assert openstack("allocation candidate list --resource VCPU=2 --required CUSTOM_FAST") == []

    openstack("resource provider set {numa1} --name numa1 --parent-provider {numa0}")
    assert openstack("resource provider show {numa1}")["parent_provider_uuid"] == "{numa0}"

    openstack("resource provider allocation delete {consumer}")
    for name in ("numa1", "numa0", "host"):
        openstack(f"resource provider delete {{{name}}}")
    assert openstack("resource provider list") == []
