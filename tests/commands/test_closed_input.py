"""Commands whose standard input is closed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("import", "-"), 1, "standard input cannot be read: Bad file descriptor"),
        (
            ("db", "downgrade", "base"),
            2,
            "Confirm the downgrade with --yes: there is no terminal to ask on.",
        ),
    ],
)
def test_standard_input_that_is_closed_is_an_error(
    tmp_path: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    data_dir = tmp_path / "data"
    failed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "placement_svc", *arguments],
        env={"PATH": os.environ["PATH"], "PLACEMENT_DATA_DIR": str(data_dir)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (status, f"Error: {message}")
    assert not data_dir.exists()
