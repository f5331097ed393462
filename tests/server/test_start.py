"""SIGTERM while the service starts."""

import os
import subprocess
import sys

from tests.support.service import TIMEOUT, free_port

START = """
import os, signal, sys, time
from placement_svc import config
from placement_svc.server import serve

def report(*_, **__):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except SystemExit:
        return {}

serve.startup_report = report
serve.serve(None, config.from_environ(), None, host="127.0.0.1", port=int(sys.argv[1]), workers=1, threads=1)
"""
"""Starts a service; a library loses the exit at SIGTERM, as SQLAlchemy does at its first connection."""


def test_sigterm_stops_a_service_although_a_library_loses_the_exit(database_url: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", START, str(free_port())],
        env=os.environ | {"PLACEMENT_DATABASE_URL": database_url},
        capture_output=True,
        timeout=TIMEOUT,
    )
    assert ended.returncode == 0, ended.stderr
