"""`examples/scheduler.py` places servers, keeps them apart, and moves them off a host."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

from tests.conftest import LoadCloud
from tests.support.cloud import read, uuid_of

SCRIPT = Path(__file__).parents[1] / "examples/scheduler.py"
REQUEST = "resources=VCPU:2"


def scheduler(url: str, *arguments: str, token: str = "admin") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, url, *arguments],
        env=os.environ | {"PLACEMENT_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def hosts(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the names of the hosts that the command has printed."""
    assert result.returncode == 0, result.stderr
    return [line.split()[1] for line in result.stdout.splitlines()]


def test_servers_are_spread_kept_apart_and_moved(live: str, load_cloud: LoadCloud) -> None:
    load_cloud(read("a{VCPU8}; b{VCPU6}; c{VCPU4}; d{VCPU2}"))
    # a has 8 free, then 6 as b, and then both 4 as c: the first by uuid.
    first = min("ab", key=uuid_of)
    assert hosts(scheduler(live, "place", "2", REQUEST)) == ["a", first]
    assert sorted(hosts(scheduler(live, "place", "3", REQUEST, "--apart"))) == ["a", "b", "c"]
    # a and b have more room, but each has a server of the group.
    assert hosts(scheduler(live, "evacuate", uuid_of("c"))) == ["d"]
    assert hosts(scheduler(live, "evacuate", uuid_of("c"))) == []


def test_refusal_names_the_explanation(live: str, load_cloud: LoadCloud) -> None:
    load_cloud(read("a{VCPU8}; b{VCPU6}"))
    refused = scheduler(live, "place", "3", REQUEST, "--apart")
    assert refused.returncode == 1
    assert "Explained by: /allocation_candidates/explanation?resources=VCPU:2" in refused.stderr


def test_evacuation_moves_servers_without_a_type_and_names_those_moved_before_an_error(
    live: str, load_cloud: LoadCloud
) -> None:
    load_cloud(read("a{VCPU8}; b{VCPU3}"))
    for number in (1, 2):
        claim_without_type(live, f"c0000000-0000-4000-8000-00000000000{number}", uuid_of("a"))
    refused = scheduler(live, "evacuate", uuid_of("a"))
    assert refused.returncode == 1
    assert "There are no candidates" in refused.stderr
    assert [line.split()[1] for line in refused.stdout.splitlines()] == ["b"]


def test_missing_token_and_missing_service_are_explained(live: str) -> None:
    refused = scheduler(live, "place", "1", REQUEST, token="")
    assert "needs a token" in refused.stderr
    assert "Traceback" not in refused.stderr
    refused = scheduler("http://127.0.0.1:1", "place", "1", REQUEST)
    assert refused.stderr.startswith("The service at http://127.0.0.1:1 does not respond: ")


def claim_without_type(url: str, consumer: str, provider: str) -> None:
    """Claim two VCPUs of a provider as a client of microversion 1.36 does."""
    body = {
        "allocations": {provider: {"resources": {"VCPU": 2}}},
        "consumer_generation": None,
        "project_id": "p",
        "user_id": "u",
    }
    headers = {
        "X-Auth-Token": "admin",
        "OpenStack-API-Version": "placement 1.36",
        "Content-Type": "application/json",
    }
    request = Request(f"{url}/allocations/{consumer}", json.dumps(body).encode(), headers, method="PUT")
    with urlopen(request) as response:
        assert response.status == 204
