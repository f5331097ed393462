"""The console at the size of a large cloud: processor time of each view, and when Chromium paints it.

`python -m bench.console` prints both; the latter only with the extra `browser` and Debian's chromium.
"""

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from bench import large_cloud
from bench.costs import cpu_seconds
from bench.services import Server, serve_ours
from placement_svc.provisioning import embedded
from placement_svc.provisioning.database import upgrade

NUMA_NODES = "resources1=VCPU:4,MEMORY_MB:4096&resources2=SRIOV_NET_VF:1&group_policy=none"
NO_CANDIDATE = f"{NUMA_NODES}&required1=HW_CPU_X86_SGX"

VIEWS = (
    ("Overview", "/console"),
    ("Map", "/console/map"),
    ("Map by rack", "/console/map?group_by=aggregate&fill=VCPU"),
    ("data of the map", "/console/map.json"),
    ("Hosts", "/console/hosts"),
    ("Hosts by used VCPU", "/console/hosts?sort_by=-ratio:VCPU"),
    ("a host", "/console/hosts/{host}"),
    ("Ask", f"/console/ask?{NUMA_NODES}"),
    ("Ask, how often it fits", f"/console/ask?{NUMA_NODES}&fits=1"),
    ("Ask without candidates", f"/console/ask?{NO_CANDIDATE}"),
    ("Consumers", "/console/consumers"),
    ("Projects", "/console/projects"),
)

REQUESTS = 10
"""How often each view is requested for its processor time."""

PAINTS = 5
"""How often Chromium opens each view."""

FIRST_PAINT = """
    performance.getEntriesByName("first-contentful-paint").map(entry => entry.startTime)[0] ?? null
"""
IS_LOADED = 'document.querySelector("#map").dataset.loaded ?? null'
NEXT_FRAME = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True)
class ViewCost:
    """The cost of a view: processor time in ms, and the size of the response in kB."""

    service: float
    postgres: float
    kilobytes: float


@dataclass(frozen=True)
class Paint:
    """Medians in ms from the navigation on: the first paint, and when the map is drawn (None: no map)."""

    first: float
    drawn: float | None


@contextmanager
def serve_large_cloud(hosts: int) -> Iterator[tuple[Server, int, str]]:
    """Yield the running service, the process id of its PostgreSQL, and the uuid of a host."""
    with TemporaryDirectory(prefix="placement-console-") as name, embedded.start(Path(name)) as running:
        upgrade(running.url)
        engine = create_engine(running.url, poolclass=NullPool)
        large_cloud.fill(engine, hosts)
        with engine.connect() as connection:
            host = connection.scalar(text("SELECT uuid FROM resource_providers WHERE parent_id IS NULL"))
        postmaster = int(Path(name, "postgres/postmaster.pid").read_text().split()[0])
        with serve_ours(running.url, Path(name)) as server:
            yield server, postmaster, str(host)


def measure_view(server: Server, postmaster: int, path: str) -> ViewCost:
    """Return the cost of one request for a view, the mean of several."""
    body = server.service.request("GET", path)
    before = cpu_seconds(server.pid), cpu_seconds(postmaster)
    for _ in range(REQUESTS):
        server.service.request("GET", path)
    service, postgres = cpu_seconds(server.pid) - before[0], cpu_seconds(postmaster) - before[1]
    return ViewCost(service * 1000 / REQUESTS, postgres * 1000 / REQUESTS, len(body) / 1000)


def measure_paint(url: str, chromium: str) -> Paint:
    """Return when Chromium paints a view, in a new context each time."""
    from playwright.sync_api import sync_playwright  # The extra `browser` is optional.

    firsts: list[float] = []
    drawn: list[float] = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        for _ in range(PAINTS):
            context = browser.new_context(viewport={"width": 1280, "height": 860})
            page = context.new_page()
            started = time.perf_counter()
            page.goto(url, wait_until="commit")
            firsts.append(_wait_for(page, FIRST_PAINT))
            if "/map" in url:
                _wait_for(page, IS_LOADED)
                page.evaluate(NEXT_FRAME)
                drawn.append((time.perf_counter() - started) * 1000)
            context.close()
        browser.close()
    return Paint(statistics.median(firsts), statistics.median(drawn) if drawn else None)


def _wait_for(page: Any, script: str) -> Any:
    """Return the value of a script that is not null; the pages refuse scripts that wait by themselves."""
    while (value := page.evaluate(script)) is None:
        page.wait_for_timeout(5)
    return value


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


@click.command()
@click.option("--hosts", default=10_000, show_default=True, type=click.IntRange(1))
def main(hosts: int) -> None:
    """Print the cost of each view of the console."""
    columns = ("view", "service ms", "PostgreSQL ms", "kB", "first paint ms", "map drawn ms")
    click.echo("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    chromium = shutil.which("chromium")
    with serve_large_cloud(hosts) as (server, postmaster, host):
        for name, template in VIEWS:
            path = template.replace("{host}", host)
            cost = measure_view(server, postmaster, path)
            is_page = not path.endswith(".json")
            paint = measure_paint(server.service.url + path, chromium) if chromium and is_page else None
            cells = (
                *(name, f"{cost.service:.0f}", f"{cost.postgres:.0f}", f"{cost.kilobytes:,.0f}"),
                _milliseconds(paint.first if paint else None),
                _milliseconds(paint.drawn if paint else None),
            )
            click.echo("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
