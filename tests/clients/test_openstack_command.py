"""Every command that osc-placement adds to `openstack`, and what it prints, at old and new microversions."""

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

from tests.clients.commands import NEWEST, OWNED, READS, REFUSALS, WRITES, Printed
from tests.support.cloud import load, read, uuid_of

pytest.importorskip("osc_placement", reason="needs the extra clients: pip install -e '.[clients]'")

from openstackclient.common.clientmanager import ClientManager
from openstackclient.shell import OpenStackShell
from osc_placement.plugin import make_client

# The command makes one client for the life of its process, and here it is run many times in one.
ClientManager.placement = property(make_client)

NEGOTIATED = "1.29"
"""What osc-placement asks for unless told otherwise."""

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
"""The uuids that are written as `{name}`, in what is typed and in what is printed."""

SILENT = re.compile(
    "resource provider (inventory |trait |allocation )?delete|resource class (create|set|delete)"
    "|trait (create|delete)"
)
"""The commands that print nothing."""

Openstack = Callable[..., Printed]


class Failure(Exception):
    """The command ended with another status than 0; the message is what it wrote on standard error."""


def words(line: str, url: str, version: str) -> list[str]:
    access = ["--os-auth-type", "admin_token", "--os-endpoint", url, "--os-token", "admin"]
    form = [] if SILENT.match(line) else ["-f", "json"]
    return [*access, "--os-placement-api-version", version, *shlex.split(line.format(**UUIDS)), *form]


def named(text: str) -> str:
    for name, uuid in UUIDS.items():
        text = text.replace(uuid, f"{{{name}}}")
    return text


@pytest.fixture
def openstack(service: str, capsys: pytest.CaptureFixture[str]) -> Openstack:
    """The command `openstack`, run in this process: it returns what is printed, None for nothing."""

    def run(line: str, version: str = NEWEST) -> Printed:
        status = OpenStackShell().run(words(line, service, version))
        printed, complaint = (named(text) for text in capsys.readouterr())
        if status:
            raise Failure(complaint)
        return json.loads(printed) if printed else None

    return run


@pytest.fixture
def cloud(service: str, api: Callable[..., TestResponse]) -> None:
    """Two NUMA nodes in a host, of which a consumer has a part, some names, and a spare provider."""

    def request(method: str, path: str, json: Any = None, headers: Any = None) -> tuple[int, Any]:
        response = api(method, path, json, headers={"X-Roles": "admin,service"} | (headers or {}))
        return response.status_code, response.json if response.data else None

    for path in ("/traits/CUSTOM_FAST", "/traits/CUSTOM_UNUSED", "/resource_classes/CUSTOM_GOLD"):
        assert request("PUT", path) == (201, None)
    load(CLOUD, request)


def ordered(printed: Printed) -> Printed:
    """Return what is printed with its rows in an order of their own: none is promised."""
    return sorted(printed, key=json.dumps) if isinstance(printed, list) else printed


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("version", "line", "printed"), READS)
def test_command_that_reads(openstack: Openstack, version: str, line: str, printed: Printed) -> None:
    assert ordered(openstack(line, version)) == ordered(printed)


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("version", "line", "printed", "then", "shown"), WRITES)
def test_command_that_writes(
    openstack: Openstack, version: str, line: str, printed: Printed, then: str, shown: Printed
) -> None:
    assert ordered(openstack(line, version)) == ordered(printed)
    assert ordered(openstack(then)) == ordered(shown)


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("line", "complaint"), REFUSALS)
def test_command_that_is_refused(openstack: Openstack, line: str, complaint: str) -> None:
    with pytest.raises(Failure) as refused:
        openstack(line)
    assert complaint in str(refused.value)


@pytest.mark.parametrize("version", ["1.2", NEWEST])
def test_resource_class_comes_and_goes(openstack: Openstack, version: str) -> None:
    standard = openstack("resource class list", version)
    assert standard[0] == {"name": "VCPU"}
    openstack("resource class create CUSTOM_GOLD", version)
    assert openstack("resource class list", version) == [*standard, {"name": "CUSTOM_GOLD"}]
    openstack("resource class delete CUSTOM_GOLD", version)
    assert openstack("resource class list", version) == standard


def test_every_command_is_run() -> None:
    run = {line for table in (READS, WRITES) for _, line, *_ in table}
    run |= {"resource class list", "resource class delete"}
    commands = {command.name.replace("_", " ") for command in entry_points(group="openstack.placement.v1")}
    assert {name for name in commands if not any(f"{line} ".startswith(f"{name} ") for line in run)} == set()


def test_version_is_negotiated(openstack: Openstack) -> None:
    openstack("resource provider create new", version="1")
    # The complaint of a client that has settled for it.
    with pytest.raises(Failure, match=f"version {NEGOTIATED}; requires at least version 1.39"):
        openstack("resource provider list --required CUSTOM_A,CUSTOM_B", version="1")


def test_process_of_its_own(service: str) -> None:
    def run(line: str) -> Printed:
        command = [sys.executable, "-m", "openstackclient.shell", *words(line, service, NEWEST)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)

    created = run("resource provider create host")
    assert run("resource provider list") == [created]


def test_life_of_a_claim(openstack: Openstack) -> None:
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
    wanted = {row["resource provider"]: row["allocation"] for row in candidates}
    assert wanted == {"{host}": "DISK_GB=10", "{numa1}": "VCPU=3", "{numa0}": "VCPU=1"}

    claim = " ".join(f"--allocation rp={provider},{resources}" for provider, resources in wanted.items())
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
