"""The demo prints its cloud and candidates, serves, and cleans up."""

import itertools
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.service import free_port, wait_until

SECONDS = 120

CANDIDATES = [
    [node, host, disk]
    for host, nodes in (("CN1", ("N11", "N12")), ("CN2", ("N21", "N22")))
    for node in nodes
    for disk in (host, "SS1")
]

Demo = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def demo(passable_dir: Path) -> Iterator[Demo]:
    """A function that starts the command in a session of its own, like a terminal."""
    environ = os.environ | {
        "TMPDIR": str(passable_dir),
        "PLACEMENT_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "PLACEMENT_AUTH": "nonsense",
    }
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, port: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "placement_svc", "demo", "--port", str(port), *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.communicate()


@pytest.fixture(scope="module")
def shown(demo: Demo) -> str:
    """The output of `demo --once` to a pipe."""
    process = demo("--once", "--hosts", "0")
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")
    return output


def rows(output: str) -> list[list[str]]:
    """Return the table of candidates, without the row numbers."""
    return [
        [cell.strip() for cell in line.split("│")[2:-1]]
        for line in output.splitlines()
        if re.match("│ +[0-9]", line)
    ]


def read_until(process: subprocess.Popen[str], start: str) -> list[str]:
    """Return the lines of output up to the first one that begins with `start`."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(start):
            return lines
    raise AssertionError(process.communicate()[1])


def test_once_prints_the_eight_candidates(shown: str) -> None:
    assert sorted(rows(shown)) == sorted(CANDIDATES)


def test_once_prints_the_trees(shown: str) -> None:
    drawn = [line.split("  ")[0] for line in shown.splitlines()]
    start = drawn.index("SS1")
    assert drawn[start : start + 7] == ["SS1", "CN1", "├── N11", "└── N12", "CN2", "├── N21", "└── N22"]


def test_pipe_gets_no_escape_codes(shown: str) -> None:
    assert "\x1b" not in shown


def test_demo_leaves_no_files(shown: str, passable_dir: Path) -> None:
    assert list(passable_dir.iterdir()) == []


def test_racks_do_not_change_the_candidates(demo: Demo) -> None:
    process = demo("--once")
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")
    assert "Loaded 1,090 resource providers and 857 consumers in " in output
    assert sorted(rows(output)) == sorted(CANDIDATES)


@pytest.mark.parametrize(("hosts", "why"), [(20, 0), (200, 1)])
def test_printed_commands_answer(demo: Demo, hosts: int, why: int) -> None:
    """The full rack has no candidates; a few hosts have none that is full, and no GPU."""
    process = demo("--hosts", str(hosts))
    *lines, _ = read_until(process, "Serving at")
    statuses: dict[str, list[int]] = {}
    for line in filter(None, lines[lines.index("Ask it, in another terminal:") + 1 :]):
        words = shlex.split(line)
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
        assert (done.stderr == "") == (done.returncode < 2), done.stderr
        statuses.setdefault(words[words.index("placement_svc") + 1], []).append(done.returncode)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=SECONDS)
    # Nothing has searched in vain yet.
    assert statuses.pop("top") == [0, 0]
    assert statuses.pop("why") == [why]
    assert statuses == {"tree": [0], "who": [0], "fits": [0], "find": [0], "empty": [0]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_signal_stops_the_serving_demo(demo: Demo, passable_dir: Path, number: int) -> None:
    process = demo()
    *lines, serving = read_until(process, "Serving at")
    port = int(serving.split(":")[2].split(" ")[0])
    headers, url = curl(next(line for line in lines if line.startswith("curl ")))
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        assert answer.status == 200
    os.killpg(process.pid, number)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output, errors) == (0, "", "")
    assert list(passable_dir.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_further_signals_do_not_change_how_the_demo_ends(demo: Demo, passable_dir: Path, number: int) -> None:
    process = demo("--hosts", "0")
    read_until(process, "Serving at")
    while process.poll() is None:
        os.killpg(process.pid, number)
        time.sleep(0.0005)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output, errors) == (0, "", "")
    assert list(passable_dir.iterdir()) == []


def curl(line: str) -> tuple[dict[str, str], str]:
    """Return the headers and the URL of a curl command line."""
    words = shlex.split(line)
    headers = [word for option, word in itertools.pairwise(words) if option == "-H"]
    return dict(header.split(": ", 1) for header in headers), words[-1]


def is_listening(port: int, _: Path) -> bool:
    """Return whether the demo's service listens, which it does before it is ready."""
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def has_database(_: int, directory: Path) -> bool:
    """Return whether the demo's database runs, which is then being filled."""
    return any(directory.glob("*/data/postgres/postmaster.pid"))


@pytest.mark.long
@pytest.mark.parametrize(("has_started", "hosts"), [(has_database, 100_000), (is_listening, 0)])
def test_ctrl_c_during_the_start_leaves_no_files(
    demo: Demo, passable_dir: Path, has_started: Callable[[int, Path], bool], hosts: int
) -> None:
    port = free_port()
    process = demo("--hosts", str(hosts), port=port)

    def has_reached_the_step() -> bool:
        assert process.poll() is None
        return has_started(port, passable_dir)

    wait_until(has_reached_the_step)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=SECONDS)
    # On a busy machine, the start may have ended before the signal comes.
    assert process.returncode == (0 if "Serving at" in output else 1)
    assert "Traceback" not in output + errors
    assert list(passable_dir.iterdir()) == []


def test_port_in_use_is_reported_in_one_line(demo: Demo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = demo("--once", port=port)
        output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (1, "")
    assert errors.startswith(f"Error: The demo cannot listen on 127.0.0.1:{port} (Address already in use)")
    assert errors.count("\n") == 1
