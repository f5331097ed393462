"""No request costs more than its bound, in clouds that make requests expensive.

The fuzzer draws requests, measures them at a real service, and changes the most expensive ones. It runs for
COST_FUZZ_SECONDS (60 by default) from the seed COST_FUZZ_SEED. COST_FUZZ_DIR names the directory for its
findings. COST_FUZZ_REPLAY names such a file, whose request is then sent and measured again.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from placement_svc.provisioning import embedded
from tests.cost import clouds
from tests.cost.fuzzer import Finding, as_text, confirmed, fuzz, problem, read_case, service_with

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("COST_FUZZ_SECONDS", "60"))
SEED = int(os.environ.get("COST_FUZZ_SEED", "0"))
REPLAY = os.environ.get("COST_FUZZ_REPLAY")


@pytest.fixture(scope="module")
def server(passable_dir: Path) -> Iterator[tuple[str, int]]:
    """The URL of a PostgreSQL server of its own, and the process id of its postmaster."""
    with embedded.start(passable_dir / "cost") as running:
        postmaster_file = passable_dir / "cost" / "postgres" / "postmaster.pid"
        yield running.url, int(postmaster_file.read_text().split()[0])


@pytest.fixture(scope="module")
def directory() -> Path:
    """The directory for findings."""
    path = Path(os.environ.get("COST_FUZZ_DIR") or tempfile.mkdtemp(prefix="cost-findings-"))
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.skipif(REPLAY is not None, reason="a finding is replayed")
def test_no_request_exceeds_its_bound(server: tuple[str, int], directory: Path) -> None:
    ends = monotonic() + SECONDS
    per_cloud = min(max(SECONDS / len(clouds.BUILDERS), 5.0), 60.0)
    findings: list[Finding] = []
    statuses: Counter[int] = Counter()
    for name, seed in clouds.names(SEED):
        if monotonic() >= ends:
            break
        until = min(ends, monotonic() + per_cloud)
        with service_with(*server, name, seed) as running:
            suspects = {}
            for request, cost in fuzz(running, Random(f"{name}/{seed}"), until):
                statuses[cost.status] += 1
                if found := problem(request, cost):
                    suspects.setdefault((request.operation, found.split()[0]), request)
            findings += filter(None, (confirmed(running, request) for request in suspects.values()))
    print(f"{statuses.total()} requests, by status: {sorted(statuses.items())}")
    assert statuses[200], "no request succeeded"
    reports = [f"{each}\n{each.write(directory)}\n{as_text(each.request)}" for each in findings]
    assert not reports, "\n\n".join([f"{len(reports)} findings", *reports])


@pytest.mark.skipif(REPLAY is None, reason="COST_FUZZ_REPLAY is unset")
def test_replay(server: tuple[str, int]) -> None:
    name, seed, request = read_case(Path(REPLAY or ""))
    with service_with(*server, name, seed) as running:
        costs = [running.send_on_new_connections(request) for _ in range(2)]
    print(*costs, sep="\n")
    assert not problem(request, costs[-1]), costs[-1]
