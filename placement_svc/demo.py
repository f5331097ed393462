"""The demo: a small cloud in a temporary database, and one request for allocation candidates.

The cloud is topology P2 of `docs/spec/candidates.md 6.1`: two hosts with two NUMA nodes each, and a sharing
provider with storage for both. The database is created for each demo and removed at its end.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import os_traits
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.tree import Tree as TreeView

from placement_svc.domain.demo import demo_uuid
from placement_svc.http.microversion import NEWEST
from placement_svc.provisioning import embedded
from placement_svc.provisioning.database import upgrade
from placement_svc.provisioning.leftovers import (
    command_directory,
    record_data_dir,
    remove_leftovers,
    service_lock,
)

HOST = "127.0.0.1"
HOSTS = 2
"""The number of hosts in topology P2."""

REQUESTED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 500}
LIMIT = 10
"""The `limit` of the request if the cloud has more than `HOSTS` hosts."""

PRINTED_TREES = 4
TREES_PER_REQUEST = 20
"""The number of provider trees whose inventories are set by one request."""

THREADS = 8
START_SECONDS = 60
POLL_SECONDS = 0.02

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": f"placement {NEWEST}"}


class DemoError(Exception):
    """The demo cannot run; the message gives the reason."""


@dataclass(frozen=True)
class DemoProvider:
    """A resource provider of the demo.

    `inventory` maps resource classes to totals. `aggregates` has one letter for each aggregate. `parent` is
    the name of the parent provider.
    """

    name: str
    inventory: Mapping[str, int]
    parent: str | None = None
    aggregates: str = ""
    traits: tuple[str, ...] = ()


DemoTree = tuple[DemoProvider, ...]
"""A provider tree, root first, and parents before their children."""


def cloud(hosts: int) -> list[DemoTree]:
    """Return shared storage and `hosts` hosts, alternately like CN1 and CN2 of topology P2."""
    storage = DemoProvider("SS1", {"DISK_GB": 1000}, None, "A", (os_traits.MISC_SHARES_VIA_AGGREGATE,))
    return [(storage,), *(_host(number) for number in range(1, hosts + 1))]


def _host(number: int) -> DemoTree:
    name = f"CN{number}"
    like_cn1 = number % 2 == 1
    return (
        DemoProvider(name, {"MEMORY_MB": 1024, "DISK_GB": 1000}, None, "AB" if like_cn1 else "A"),
        DemoProvider(f"N{number}1", {"VCPU": 8}, name, "" if like_cn1 else "B"),
        DemoProvider(f"N{number}2", {"VCPU": 8}, name),
    )


def run(hosts: int, port: int, once: bool) -> None:
    """Serve a cloud of `hosts` hosts on `port` (0: any free port), and print some allocation candidates.

    First removes what killed commands have left. Unless `once` is set, continues to serve until Ctrl-C or
    SIGTERM. Ignores all settings, so that no existing database is read or changed. Raises `DemoError` if the
    port is in use or the service fails, and `KeyboardInterrupt` if it is stopped before it has printed the
    candidates.
    """
    _raise_keyboard_interrupt_on_signals()
    remove_leftovers()
    port = _free_port(port)
    out = Console(highlight=False)
    with command_directory("demo") as directory:
        # If this process is root, PostgreSQL runs as another user, which must be able to reach its data.
        directory.chmod(0o711)
        log = directory / "serve.log"
        with _database(directory / "data") as url, _serving(url, port, directory) as server:
            client = DemoClient(port)
            trees = cloud(hosts)
            started = time.monotonic()
            load(client, trees)
            count = sum(len(tree) for tree in trees)
            out.print(f"Loaded {count} resource providers in {time.monotonic() - started:.1f} s:\n")
            _print_trees(out, trees)
            _print_candidates(out, client, trees)
            if not once:
                _serve_on(out, client, server, log)


def _raise_keyboard_interrupt_on_signals() -> None:
    """Make the signals that stop a command raise `KeyboardInterrupt`, so that everything is cleaned up."""
    # The shell of a script makes background jobs ignore SIGINT, so the handler is set explicitly.
    numbers = [signal.SIGINT, signal.SIGTERM]
    # After nohup, the demo must survive the end of its terminal.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, signal.default_int_handler)


def _free_port(port: int) -> int:
    """Return `port`, or a free one for 0; raises `DemoError` if `port` is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise DemoError(
                f"The demo cannot listen on {HOST}:{port} ({error.strerror}):"
                " choose another port with --port, or any free one with --port 0"
            ) from None
        name: tuple[str, int] = probe.getsockname()
    return name[1]


@contextmanager
def _database(data_dir: Path) -> Iterator[str]:
    """Yield the URL of a new embedded database with the current schema."""
    record_data_dir(data_dir.parent, data_dir)
    with embedded.start(data_dir) as running:
        upgrade(running.url)
        yield running.url


@contextmanager
def _serving(database_url: str, port: int, directory: Path) -> Iterator[Popen[bytes]]:
    """Yield a process of `placement-svc serve` that is ready; its output goes to `serve.log`."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PLACEMENT_")}
    environ["PLACEMENT_DATABASE_URL"] = database_url
    environ |= {"PLACEMENT_LOG_FORMAT": "console", "PLACEMENT_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "placement_svc", "serve", "--port", str(port)]
    log = directory / "serve.log"
    with log.open("wb") as output, service_lock(directory) as lock:
        # In a session of its own, so that Ctrl-C on the terminal reaches only the demo.
        server = Popen(
            command,
            env=environ,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[lock],
        )
        os.write(lock, str(server.pid).encode())
    try:
        _wait_until_ready(DemoClient(port), server, log)
        yield server
    finally:
        server.terminate()
        server.wait()


def _wait_until_ready(client: "DemoClient", server: Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.request("GET", "/")
            return
        except DemoError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise _service_failure(log) from None
        time.sleep(POLL_SECONDS)


def _service_failure(log: Path) -> DemoError:
    """Return an error with the last line that the service has logged."""
    lines = log.read_text(errors="replace").split("\n")
    return DemoError(f"The service failed: {next(filter(None, reversed(lines)), 'its log is empty')}")


@dataclass(frozen=True)
class DemoClient:
    """A client of the service on this machine, as the user admin at the newest microversion."""

    port: int

    @property
    def url(self) -> str:
        """The URL of the service."""
        return f"http://{HOST}:{self.port}"

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of the response; raises `DemoError` for an error status or without a response."""
        content = None if body is None else json.dumps(body)
        headers = HEADERS if body is None else HEADERS | {"Content-Type": "application/json"}
        try:
            with closing(HTTPConnection(HOST, self.port, timeout=60)) as connection:
                connection.request(method, path, content, headers)
                response = connection.getresponse()
                text = response.read()
        except (OSError, HTTPException) as error:
            raise DemoError(f"{method} {self.url}{path} got no response: {error}") from error
        if response.status >= 400:
            raise DemoError(f"{method} {self.url}{path} got {response.status}: {text.decode()}")
        return json.loads(text) if text else None


def load(client: DemoClient, trees: Sequence[DemoTree]) -> None:
    """Create the providers of `trees` in an empty service."""
    batches = [trees[start : start + TREES_PER_REQUEST] for start in range(0, len(trees), TREES_PER_REQUEST)]
    console = Console(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    pool = ThreadPoolExecutor(THREADS)
    try:
        with progress:
            task = progress.add_task("Loading", total=len(trees))
            for loaded in pool.map(partial(_load_batch, client), batches):
                progress.advance(task, loaded)
    finally:
        # After Ctrl-C, cancel the batches that have not started.
        pool.shutdown(cancel_futures=True)


def _load_batch(client: DemoClient, trees: Sequence[DemoTree]) -> int:
    """Create the providers of some trees, then all their inventories; return the number of trees."""
    inventories = {
        demo_uuid(provider.name): {
            "resource_provider_generation": _create(client, provider),
            "inventories": {name: {"total": total} for name, total in provider.inventory.items()},
        }
        for tree in trees
        for provider in tree
    }
    client.request("POST", "/reshaper", {"inventories": inventories, "allocations": {}})
    return len(trees)


def _create(client: DemoClient, provider: DemoProvider) -> int:
    """Create a provider with its traits and aggregates; return its generation."""
    uuid = demo_uuid(provider.name)
    parent_uuid = provider.parent and demo_uuid(provider.parent)
    body = {"name": provider.name, "uuid": uuid, "parent_provider_uuid": parent_uuid}
    generation: int = client.request("POST", "/resource_providers", body)["generation"]
    memberships = {
        "traits": list(provider.traits),
        "aggregates": [demo_uuid(f"aggregate {letter}") for letter in provider.aggregates],
    }
    for kind, members in memberships.items():
        if members:
            change = {kind: members, "resource_provider_generation": generation}
            updated = client.request("PUT", f"/resource_providers/{uuid}/{kind}", change)
            generation = updated["resource_provider_generation"]
    return generation


def _print_trees(out: Console, trees: Sequence[DemoTree]) -> None:
    for tree in trees[:PRINTED_TREES]:
        views: dict[str | None, TreeView] = {}
        for provider in tree:
            label = _label(provider)
            views[provider.name] = views[provider.parent].add(label) if provider.parent else TreeView(label)
        out.print(views[tree[0].name])
    if len(trees) > PRINTED_TREES:
        out.print(f"... and {len(trees) - PRINTED_TREES} more hosts like these")


def _label(provider: DemoProvider) -> str:
    inventory = ", ".join(f"{name} {total}" for name, total in provider.inventory.items())
    parts = [f"[bold]{provider.name}[/bold]  {inventory}", *provider.traits]
    if provider.aggregates:
        parts.append(f"in aggregate {', '.join(provider.aggregates)}")
    return "; ".join(parts)


def _print_candidates(out: Console, client: DemoClient, trees: Sequence[DemoTree]) -> None:
    """Request allocation candidates, and print them as a table with a curl command for the same request."""
    path = "/allocation_candidates?resources=" + ",".join(f"{name}:{n}" for name, n in REQUESTED.items())
    if len(trees) > 1 + HOSTS:
        path += f"&limit={LIMIT}"
    started = time.monotonic()
    allocation_requests = client.request("GET", path)["allocation_requests"]
    milliseconds = 1000 * (time.monotonic() - started)
    names = {demo_uuid(provider.name): provider.name for tree in trees for provider in tree}
    table = Table("", *(f"{name}:{amount}" for name, amount in REQUESTED.items()))
    for number, allocation_request in enumerate(allocation_requests, 1):
        provider_names = {
            name: names[uuid]
            for uuid, allocation in allocation_request["allocations"].items()
            for name in allocation["resources"]
        }
        table.add_row(str(number), *(provider_names[name] for name in REQUESTED))
    out.print(
        f"\nGET {path}\n{len(allocation_requests)} candidates in {milliseconds:.0f} ms:", soft_wrap=True
    )
    out.print(table)
    headers = " ".join(f"-H '{name}: {value}'" for name, value in HEADERS.items())
    out.print(f"curl {headers} '{client.url}{path}'", soft_wrap=True)


def _serve_on(out: Console, client: DemoClient, server: Popen[bytes], log: Path) -> None:
    """Wait for Ctrl-C; raises `DemoError` if the service ends first."""
    try:
        # Inside the try block, because a caller may send the signal as soon as it reads this line.
        out.print(f"\nServing at {client.url} until Ctrl-C.")
        server.wait()
    except KeyboardInterrupt:
        return
    raise _service_failure(log)
