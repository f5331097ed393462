"""The files of the metrics on a full disk, which would kill a worker by SIGBUS."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from placement_svc.observability.count_files import CountFile

MANY = range(2000)
"""Keys that need more than the first 64 KiB of a file."""


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after which no file on the disk can get more space."""
    allocate = os.posix_fallocate

    def refuse(descriptor: int, offset: int, size: int) -> None:
        if "memfd" not in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, offset, size)

    return lambda: monkeypatch.setattr(os, "posix_fallocate", refuse)


def count_all(file: CountFile) -> None:
    for number in MANY:
        file.write_value(f"key {number:040}", float(number), 0.0)


def counts(file: MmapedDict) -> dict[str, float]:
    return {key.strip(): value for key, value, _ in file.read_all_values()}


ALL = {f"key {number:040}": float(number) for number in MANY}


def test_space_is_allocated_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "counter_1.db"
    file = CountFile(str(path))
    assert path.stat().st_blocks * 512 >= path.stat().st_size == 1 << 16
    count_all(file)
    assert path.stat().st_blocks * 512 >= path.stat().st_size > 1 << 16
    assert counts(file) == ALL
    read = MmapedDict.read_all_values_from_file(str(path))
    assert {key.strip(): value for key, value, _, _ in read} == ALL


def test_a_worker_counts_in_memory_if_the_disk_is_full(tmp_path: Path, fill_disk: Callable[[], None]) -> None:
    fill_disk()
    path = tmp_path / "counter_1.db"
    file = CountFile(str(path))
    count_all(file)
    assert counts(file) == ALL
    assert path.stat().st_size == 0
    file.close()


def test_counts_move_to_memory_if_their_file_cannot_grow(
    tmp_path: Path, fill_disk: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "counter_1.db"
    file = CountFile(str(path))
    file.write_value("first", 7.0, 0.0)
    fill_disk()
    count_all(file)
    assert counts(file) == {"first": 7.0} | ALL
    assert path.stat().st_size == 1 << 16
    assert "for lack of space: No space left on device" in caplog.text
    file.close()
