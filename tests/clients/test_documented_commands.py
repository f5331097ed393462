"""The commands of `openstack` in `docs/operations.md` work as they stand, with noauth and with tokens."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from placement_svc.demo import cloud
from tests.support.service import Service, serving

pytest.importorskip("osc_placement", reason="needs the extra clients: pip install -e '.[clients]'")

SECTION = (
    (Path(__file__).parents[2] / "docs/operations.md")
    .read_text()
    .split("### The OpenStack client\n")[1]
    .split("\n### ")[0]
)
[BLOCK] = re.findall(r"```sh\n(.*?)```", SECTION, re.S)
INSTALL, *LINES = BLOCK.splitlines()


@pytest.fixture
def noauth(service: str) -> tuple[str, str]:
    """The URL of a service with noauth, and a token."""
    return service, "admin"


@pytest.fixture
def token(database_url: str, clean_database: Callable[[], None], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a service with `PLACEMENT_AUTH=token`, and a token that the documentation creates."""
    [create] = re.findall(r"`placement-svc (token create [^`]*)`", SECTION)
    file = str(tmp_path / "tokens.json")
    created = subprocess.run(
        [sys.executable, "-m", "placement_svc", *create.split()],
        env=os.environ | {"PLACEMENT_TOKEN_FILE": file},
        check=True,
        capture_output=True,
        text=True,
    )
    with serving(database_url=database_url, auth="token", token_file=file) as running:
        assert isinstance(running, Service)
        yield running.url, created.stdout.strip()


def run(lines: list[str], url: str, token: str) -> list[str]:
    """Run the lines in a shell, with another URL and token; return the output of each command."""
    settings = {"OS_ENDPOINT": url, "OS_TOKEN": token}
    shell = "openstack() { " + f"{sys.executable} -m openstackclient.shell " + '"$@"; }\n'
    script = "\necho ---\n".join(lines).replace(".venv/bin/openstack", "openstack")
    for name, value in settings.items():
        script, count = re.subn(rf"{name}=\S+", f"{name}={value}", script)
        assert count == 1
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    done = subprocess.run(
        ["bash", "-euc", shell + script], env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("---\n")


@pytest.mark.parametrize("mode", ["noauth", "token"])
def test_commands_work(mode: str, request: pytest.FixtureRequest) -> None:
    url, token = request.getfixturevalue(mode)
    if mode == "noauth":
        cloud.load(request.getfixturevalue("database"), cloud.records(hosts=0))
    else:
        run([LINES[0], ".venv/bin/openstack resource provider create CN1"], url, token)
    _, providers, candidates, trees = run(LINES, url, token)
    assert " CN1 " in providers
    assert trees.startswith("digraph")
    assert ">CN1<" in trees
    assert (" MEMORY_MB=512" in candidates) == (mode == "noauth")


def test_extra_has_the_commands() -> None:
    assert INSTALL == ".venv/bin/pip install -e '.[clients]'"
