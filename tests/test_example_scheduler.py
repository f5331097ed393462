"""`examples/scheduler.py` places servers, keeps them apart, and moves them off a host."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import LoadCloud
from tests.support.cloud import read, uuid_of

SCRIPT = Path(__file__).parents[1] / "examples/scheduler.py"
REQUEST = "resources=VCPU:2"


def scheduler(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, url, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def hosts(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the names of the hosts that the command has printed."""
    assert result.returncode == 0, result.stderr
    return [line.split()[1] for line in result.stdout.splitlines()]


def test_servers_are_spread_kept_apart_and_moved(live: str, load_cloud: LoadCloud) -> None:
    load_cloud(read("a{VCPU8}; b{VCPU6}; c{VCPU4}"))
    # a has 8 free, then 6 as b, and then both 4 as c: the first by uuid.
    first = min("ab", key=uuid_of)
    assert hosts(scheduler(live, "place", "2", REQUEST)) == ["a", first]
    assert sorted(hosts(scheduler(live, "place", "3", REQUEST, "--apart"))) == ["a", "b", "c"]
    moved = hosts(scheduler(live, "evacuate", uuid_of("c")))
    assert len(moved) == 1
    assert "c" not in moved
    assert hosts(scheduler(live, "evacuate", uuid_of("c"))) == []


def test_refusal_names_the_explanation(live: str, load_cloud: LoadCloud) -> None:
    load_cloud(read("a{VCPU8}; b{VCPU6}"))
    refused = scheduler(live, "place", "3", REQUEST, "--apart")
    assert refused.returncode == 1
    assert "Explained by: /allocation_candidates/explanation?resources=VCPU:2" in refused.stderr
