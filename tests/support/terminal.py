"""The command line on a terminal."""

import os
import pty
import subprocess
import sys


def on_terminal(*arguments: str, columns: int, **settings: str) -> str:
    """Return the output of the command line on a terminal."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "placement_svc", *arguments],
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"COLUMNS": str(columns), "TERM": "xterm"} | settings,
    ):
        os.close(terminal)
        shown = b""
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(controller)
    return shown.decode().replace("\r\n", "\n")
