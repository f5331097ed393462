"""Processor time and peak memory of a service's worker and of its PostgreSQL server, from /proc."""

import os
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic

from tests.conftest import ADMIN

TICKS = os.sysconf("SC_CLK_TCK")
MB = 1024 * 1024
HANG_SECONDS = 60
"""Seconds after which a request counts as hanging, on a machine that is busy otherwise."""


@dataclass(frozen=True)
class Cost:
    """The cost of a request.

    The status is 0 if there was no response. `is_complete` is false if the connection ended within it.

    `worker_memory` and `server_memory` are the growth of the worker and of the PostgreSQL process that grew
    most, from before the request to the peak, in bytes.
    """

    status: int
    request_bytes: int
    response_bytes: int
    is_complete: bool
    wall_seconds: float
    worker_seconds: float
    server_seconds: float
    worker_memory: int
    server_memory: int

    @property
    def seconds(self) -> float:
        """The processor time, which does not depend on the other load of the machine."""
        return self.worker_seconds + self.server_seconds

    def __str__(self) -> str:
        return (
            f"{self.status}, {self.request_bytes:,} -> {self.response_bytes:,} B, {self.wall_seconds:.1f} s;"
            f" worker: {self.worker_seconds:.2f} s CPU, {self.worker_memory / MB:.0f} MB;"
            f" PostgreSQL: {self.server_seconds:.2f} s CPU, {self.server_memory / MB:.0f} MB"
        )


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """Return the processor time of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if with_ended_children else 13])) / TICKS


def children(pid: int) -> list[int]:
    """Return the process ids of the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def memory(pid: int) -> tuple[int, int, int]:
    """Return the resident memory of a process, its peak, and its shared part; zeros if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0, 0
    values = {
        name: int(value.split()[0]) * 1024
        for name, _, value in (line.partition(":") for line in lines)
        if name in ("VmRSS", "VmHWM", "RssShmem")
    }
    return values.get("VmRSS", 0), values.get("VmHWM", 0), values.get("RssShmem", 0)


def reset_peak(pid: int) -> None:
    """Set the peak of the resident memory of a process to its present value."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return


class Meter:
    """Measures requests to a service with one worker and a PostgreSQL server of its own."""

    def __init__(self, port: int, worker: int, postmaster: int) -> None:
        self._port = port
        self._worker = worker
        self._postmaster = postmaster

    def _server_seconds(self) -> float:
        ended = cpu_seconds(self._postmaster, with_ended_children=True)
        return ended + sum(map(cpu_seconds, children(self._postmaster)))

    def send(self, method: str, target: str, body: bytes | None, version: str) -> Cost:
        """Send a request on a new connection and measure its cost."""
        backends = children(self._postmaster)
        for pid in (self._worker, *backends):
            reset_peak(pid)
        before = {pid: memory(pid) for pid in (self._worker, *backends)}
        worker_seconds, server_seconds = cpu_seconds(self._worker), self._server_seconds()
        started = monotonic()
        status, length, is_complete = self._exchange(method, target, body, version)
        wall = monotonic() - started
        growth = {}
        for pid in (self._worker, *children(self._postmaster)):
            resident, _, shared = before.get(pid, (0, 0, 0))
            _, peak, shared_after = memory(pid)
            # Pages of shared_buffers are resident in every process that has read them.
            growth[pid] = peak - resident - max(0, shared_after - shared)
        return Cost(
            status=status,
            request_bytes=len(target) + len(body or b""),
            response_bytes=length,
            is_complete=is_complete,
            wall_seconds=wall,
            worker_seconds=cpu_seconds(self._worker) - worker_seconds,
            server_seconds=self._server_seconds() - server_seconds,
            worker_memory=growth.pop(self._worker),
            server_memory=max(growth.values()),
        )

    def _exchange(self, method: str, target: str, body: bytes | None, version: str) -> tuple[int, int, bool]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=HANG_SECONDS)
        headers = ADMIN | {
            "OpenStack-API-Version": f"placement {version}",
            "Content-Type": "application/json",
        }
        status = length = 0
        try:
            connection.request(method, target, body, headers | {"Connection": "close"})
            response = connection.getresponse()
            status = response.status
            while piece := response.read(1024 * 1024):
                length += len(piece)
            return status, length, True
        except (OSError, HTTPException):
            return status, length, False
        finally:
            connection.close()
