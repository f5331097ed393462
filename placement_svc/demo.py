"""The demo: a small cloud in a database of its own, and one question that it answers over HTTP.

The cloud is topology P2 of `docs/spec/candidates.md 6.1`: two hosts with two NUMA nodes each, and storage
that both share. The data is made anew each time and removed at the end.
"""

import json
import os
import signal
import socket
import sys
import tempfile
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
from uuid import NAMESPACE_URL, uuid5

import os_traits
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.tree import Tree as DrawnTree

from placement_svc.http.microversion import NEWEST
from placement_svc.provisioning import embedded
from placement_svc.provisioning.database import upgrade

HOST = "127.0.0.1"
HOSTS = 2
"""How many hosts topology P2 has."""

WANTED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 500}
LIMIT = 10
"""How many candidates of a cloud with more than `HOSTS` hosts are asked for."""

DRAWN_TREES = 4
TREES_AT_ONCE = 20
"""How many trees get their inventories by one request."""

THREADS = 8
START_SECONDS = 60
POLL_SECONDS = 0.02

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": f"placement {NEWEST}"}


class DemoError(Exception):
    """The demo cannot be shown; the message says why."""


@dataclass(frozen=True)
class Provider:
    """A resource provider of the demo.

    `inventory` tells the total of each resource class, `aggregates` names each aggregate by a letter.
    """

    name: str
    inventory: Mapping[str, int]
    parent: str | None = None
    aggregates: str = ""
    traits: tuple[str, ...] = ()


Tree = tuple[Provider, ...]
"""A root provider and those below it, parents before their children."""


def cloud(hosts: int) -> list[Tree]:
    """Return shared storage and as many hosts, in turn like CN1 and like CN2 of topology P2."""
    storage = Provider("SS1", {"DISK_GB": 1000}, None, "A", (os_traits.MISC_SHARES_VIA_AGGREGATE,))
    return [(storage,), *(_host(number) for number in range(1, hosts + 1))]


def _host(number: int) -> Tree:
    name = f"CN{number}"
    like_cn1 = number % 2 == 1
    return (
        Provider(name, {"MEMORY_MB": 1024, "DISK_GB": 1000}, None, "AB" if like_cn1 else "A"),
        Provider(f"N{number}1", {"VCPU": 8}, name, "" if like_cn1 else "B"),
        Provider(f"N{number}2", {"VCPU": 8}, name),
    )


def run(hosts: int, port: int, once: bool) -> None:
    """Serve a cloud of `hosts` hosts on `port` (0: any free one), ask it for candidates, show them.

    Unless `once`, it is served until Ctrl-C or SIGTERM. No setting counts: nothing that the user has
    is read or changed. Raises `DemoError` when the port is taken or the service fails, and
    `KeyboardInterrupt` when it is stopped before it has shown anything.
    """
    _interrupt_when_told_to_stop()
    port = _free_port(port)
    out = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="placement-demo-") as directory:
        # When this is root, PostgreSQL runs as another user, who has to get through.
        os.chmod(directory, 0o711)
        log = Path(directory) / "serve.log"
        with _database(Path(directory) / "data") as url, _serving(url, port, log) as server:
            service = Service(port)
            trees = cloud(hosts)
            started = time.monotonic()
            _load(service, trees)
            count = sum(len(tree) for tree in trees)
            out.print(f"Loaded {count} resource providers in {time.monotonic() - started:.1f} s:\n")
            _draw(out, trees)
            _ask(out, service, trees)
            if not once:
                _serve_on(out, service, server, log)


def _interrupt_when_told_to_stop() -> None:
    """Let the signals that end a command end it as Ctrl-C does, so that all is cleared away."""
    # A script's shell has its background jobs ignore SIGINT; sent to this one, it is meant.
    numbers = [signal.SIGINT, signal.SIGTERM]
    # After nohup the demo is to outlive its terminal.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, signal.default_int_handler)


def _free_port(port: int) -> int:
    """Return `port`, or a free one for 0; raises `DemoError` if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise DemoError(
                f"The demo cannot listen on {HOST}:{port} ({error.strerror}):"
                " name another port with --port, or any free one with --port 0"
            ) from None
        name: tuple[str, int] = probe.getsockname()
    return name[1]


@contextmanager
def _database(data_dir: Path) -> Iterator[str]:
    """Give the URL of a new embedded database that has the schema."""
    with embedded.start(data_dir) as running:
        upgrade(running.url)
        yield running.url


@contextmanager
def _serving(database_url: str, port: int, log: Path) -> Iterator[Popen[bytes]]:
    """Give a process of `placement-svc serve` that answers; its output goes to `log`."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PLACEMENT_")}
    environ["PLACEMENT_DATABASE_URL"] = database_url
    environ |= {"PLACEMENT_LOG_FORMAT": "console", "PLACEMENT_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "placement_svc.cli", "serve", "--port", str(port)]
    with log.open("wb") as output:
        # In a session of its own a terminal's Ctrl-C reaches this process alone.
        server = Popen(
            command, env=environ, stdin=DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait_for_answer(Service(port), server, log)
        yield server
    finally:
        server.terminate()
        server.wait()


def _wait_for_answer(service: "Service", server: Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            service.ask("GET", "/")
            return
        except DemoError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise _stopped(log) from None
        time.sleep(POLL_SECONDS)


def _stopped(log: Path) -> DemoError:
    lines = log.read_text(errors="replace").split("\n")
    return DemoError(f"The service does not run: {next(filter(None, reversed(lines)), 'it says nothing')}")


@dataclass(frozen=True)
class Service:
    """A running service on this machine, spoken to as the user admin at the newest microversion."""

    port: int

    @property
    def url(self) -> str:
        """Where the service answers."""
        return f"http://{HOST}:{self.port}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the answer's JSON says; raises `DemoError` for an error or no answer at all."""
        sent = None if body is None else json.dumps(body)
        headers = HEADERS if body is None else HEADERS | {"Content-Type": "application/json"}
        try:
            with closing(HTTPConnection(HOST, self.port, timeout=60)) as connection:
                connection.request(method, path, sent, headers)
                answer = connection.getresponse()
                text = answer.read()
        except (OSError, HTTPException) as error:
            raise DemoError(f"{method} {self.url}{path} has no answer: {error}") from error
        if answer.status >= 400:
            raise DemoError(f"{method} {self.url}{path} answers {answer.status}: {text.decode()}")
        return json.loads(text) if text else None


def _uuid(name: str) -> str:
    """Return the uuid of the provider or aggregate of this name, the same at each demo."""
    return str(uuid5(NAMESPACE_URL, f"placement-svc:demo:{name}"))


def _load(service: Service, trees: Sequence[Tree]) -> None:
    batches = [trees[start : start + TREES_AT_ONCE] for start in range(0, len(trees), TREES_AT_ONCE)]
    console = Console(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    pool = ThreadPoolExecutor(THREADS)
    try:
        with progress:
            task = progress.add_task("Loading", total=len(trees))
            for loaded in pool.map(partial(_load_batch, service), batches):
                progress.advance(task, loaded)
    finally:
        # Ctrl-C does not wait for batches that have not begun.
        pool.shutdown(cancel_futures=True)


def _load_batch(service: Service, trees: Sequence[Tree]) -> int:
    """Create the providers of some trees, then their inventories at once; return how many trees."""
    inventories = {
        _uuid(provider.name): {
            "resource_provider_generation": _create(service, provider),
            "inventories": {name: {"total": total} for name, total in provider.inventory.items()},
        }
        for tree in trees
        for provider in tree
    }
    service.ask("POST", "/reshaper", {"inventories": inventories, "allocations": {}})
    return len(trees)


def _create(service: Service, provider: Provider) -> int:
    """Create a provider with its traits and aggregates; return its generation."""
    uuid = _uuid(provider.name)
    parent_uuid = provider.parent and _uuid(provider.parent)
    body = {"name": provider.name, "uuid": uuid, "parent_provider_uuid": parent_uuid}
    generation: int = service.ask("POST", "/resource_providers", body)["generation"]
    memberships = {
        "traits": list(provider.traits),
        "aggregates": [_uuid(f"aggregate {letter}") for letter in provider.aggregates],
    }
    for kind, members in memberships.items():
        if members:
            wanted = {kind: members, "resource_provider_generation": generation}
            changed = service.ask("PUT", f"/resource_providers/{uuid}/{kind}", wanted)
            generation = changed["resource_provider_generation"]
    return generation


def _draw(out: Console, trees: Sequence[Tree]) -> None:
    for tree in trees[:DRAWN_TREES]:
        drawn: dict[str | None, DrawnTree] = {}
        for provider in tree:
            label = _label(provider)
            drawn[provider.name] = drawn[provider.parent].add(label) if provider.parent else DrawnTree(label)
        out.print(drawn[tree[0].name])
    if len(trees) > DRAWN_TREES:
        out.print(f"... and {len(trees) - DRAWN_TREES} more hosts like these")


def _label(provider: Provider) -> str:
    stock = ", ".join(f"{name} {total}" for name, total in provider.inventory.items())
    parts = [f"[bold]{provider.name}[/bold]  {stock}", *provider.traits]
    if provider.aggregates:
        parts.append(f"in aggregate {', '.join(provider.aggregates)}")
    return "; ".join(parts)


def _ask(out: Console, service: Service, trees: Sequence[Tree]) -> None:
    """Ask for the candidates and print them as a table, and how to ask again."""
    path = "/allocation_candidates?resources=" + ",".join(f"{name}:{n}" for name, n in WANTED.items())
    if len(trees) > 1 + HOSTS:
        path += f"&limit={LIMIT}"
    started = time.monotonic()
    requests = service.ask("GET", path)["allocation_requests"]
    milliseconds = 1000 * (time.monotonic() - started)
    names = {_uuid(provider.name): provider.name for tree in trees for provider in tree}
    table = Table("", *(f"{name}:{amount}" for name, amount in WANTED.items()))
    for number, request in enumerate(requests, 1):
        supplier = {
            name: names[uuid]
            for uuid, allocation in request["allocations"].items()
            for name in allocation["resources"]
        }
        table.add_row(str(number), *(supplier[name] for name in WANTED))
    out.print(f"\nGET {path}\n{len(requests)} candidates in {milliseconds:.0f} ms:", soft_wrap=True)
    out.print(table)
    headers = " ".join(f"-H '{name}: {value}'" for name, value in HEADERS.items())
    out.print(f"curl {headers} '{service.url}{path}'", soft_wrap=True)


def _serve_on(out: Console, service: Service, server: Popen[bytes], log: Path) -> None:
    """Wait for Ctrl-C; raises `DemoError` if the service ends before."""
    try:
        # Whoever reads this line may answer it with a signal at once.
        out.print(f"\nServing at {service.url} until Ctrl-C.")
        server.wait()
    except KeyboardInterrupt:
        return
    raise _stopped(log)
