"""Run gabbits with `gabbi-run` against a live server."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.test_gabbits import GABBITS

HANDLER = "tests.support.gabbi_candidates:CandidatesHandler"

# A selection: all files pass, but gabbi-run is slow.
FILES = ["root", "usages", "reshaper", "candidates-p1", "candidates-p2"]


@pytest.mark.long
def test_gabbi_run_against_a_live_server(live: str) -> None:
    files = [str(GABBITS / f"{name}.yaml") for name in FILES]
    gabbi_run = [sys.executable, "-m", "gabbi.runner", "-l", "-r", HANDLER, live, "--", *files]
    ran = subprocess.run(gabbi_run, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ran.returncode == 0, ran.stderr[-5000:]
