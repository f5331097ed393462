"""The output of the demo: trees, candidates, and commands to try."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from placement_svc.client.service_client import ServiceClient
from placement_svc.demo.cloud import P2
from placement_svc.demo.racks import FULL_RACK, GPU, HOSTS_PER_RACK, has_any_gpu
from placement_svc.demo.service import TOKEN
from placement_svc.domain.demo import demo_uuid
from placement_svc.domain.records import ProviderRecord
from placement_svc.domain.version_header import PLACEMENT, VERSION_HEADER
from placement_svc.domain.wording import counted
from placement_svc.http.microversion import NEWEST

REQUESTED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 500}
AGGREGATE = "A"
"""The aggregate of all hosts of topology P2, which the request names."""

SERVER = "VCPU:16,MEMORY_MB:32768"


def print_trees(out: Console) -> None:
    """Print the providers of topology P2."""
    views: dict[str, Tree] = {}
    for provider in P2:
        label = _label(provider)
        if provider.parent_uuid is None:
            views[provider.uuid] = Tree(label)
        else:
            views[provider.uuid] = views[provider.parent_uuid].add(label)
    for provider in P2:
        if provider.parent_uuid is None:
            out.print(views[provider.uuid])


def _label(provider: ProviderRecord) -> str:
    inventory = ", ".join(f"{name} {each.total}" for name, each in provider.inventories.items())
    parts = [f"[bold]{provider.name}[/bold]  {inventory}", *provider.traits]
    letters = {demo_uuid(f"aggregate {letter}"): letter for letter in "AB"}
    if provider.aggregates:
        parts.append(f"in aggregate {', '.join(letters[uuid] for uuid in provider.aggregates)}")
    return "; ".join(parts)


def print_candidates(out: Console, client: ServiceClient) -> None:
    """Request allocation candidates, and print them as a table with a curl command for the same request."""
    query = {
        "resources": ",".join(f"{name}:{amount}" for name, amount in REQUESTED.items()),
        "member_of": demo_uuid(f"aggregate {AGGREGATE}"),
    }
    path = f"/allocation_candidates?{urlencode(query, safe=':,')}"
    started = time.monotonic()
    allocation_requests = client.get(path)["allocation_requests"]
    milliseconds = 1000 * (time.monotonic() - started)
    out.print(
        f"\nGET {path}\n{counted(len(allocation_requests), 'candidate')} in {milliseconds:.0f} ms:",
        soft_wrap=True,
    )
    out.print(_table(allocation_requests))
    headers = {"X-Auth-Token": TOKEN, VERSION_HEADER: f"{PLACEMENT} {NEWEST}"}
    options = " ".join(f"-H '{name}: {value}'" for name, value in headers.items())
    out.print(f"curl {options} '{client.url}{path}'", soft_wrap=True)


def _table(allocation_requests: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with the providers of each candidate."""
    names = {provider.uuid: provider.name for provider in P2}
    table = Table("", *(f"{name}:{amount}" for name, amount in REQUESTED.items()))
    for number, allocation_request in enumerate(allocation_requests, 1):
        provider_names = {
            name: names[uuid]
            for uuid, allocation in allocation_request["allocations"].items()
            for name in allocation["resources"]
        }
        table.add_row(str(number), *(provider_names[name] for name in REQUESTED))
    return table


def print_commands(out: Console, url: str, hosts: int) -> None:
    """Print the command lines that ask the service."""
    full = min(FULL_RACK, -(-hosts // HOSTS_PER_RACK))
    host = f"rack{full:02}-host01" if hosts else "CN1"
    aggregate = demo_uuid(f"aggregate rack {full}" if hosts else f"aggregate {AGGREGATE}")
    out.print(f"\nLook at it in a browser: {url}/console", soft_wrap=True)
    out.print("\nAsk it, in another terminal:")
    for words in (
        ["top"],
        ["top", "--by", "project"],
        ["tree", host],
        ["who", host],
        ["why", f"resources={SERVER}&member_of={aggregate}"],
        ["fits", f"resources_CPU={SERVER}"],
        ["find", GPU if has_any_gpu(hosts) else "MISC_SHARES_VIA_AGGREGATE"],
        ["empty"],
    ):
        out.print(f"{_program()} {shlex.join(words)} --url {url}", soft_wrap=True, markup=False)


def _program() -> str:
    """Return the command with which this program was started."""
    if os.path.basename(sys.argv[0]) == "placement-svc":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m placement_svc"
