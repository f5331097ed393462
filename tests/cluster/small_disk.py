"""A file system of its own for each node, so that a test can fill it."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.failover import make_directory

DISK_BYTES = 2 << 30
"""The size of the file system. Its image takes only the space that is used."""

FILL_STEPS = (64 << 20, 1 << 20, 4096)
"""Bytes by which a file grows until the file system is full."""


class SmallDisk:
    """A file system in a file, mounted at `path`; only a directory if the system does not permit that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"
        self.is_mounted = os.geteuid() == 0 and self._mount()
        if not self.is_mounted:
            make_directory(path)

    def _mount(self) -> bool:
        """Mount a new file system; return False if this system does not permit it."""
        image = self.path.with_suffix(".image")
        image.touch()
        os.truncate(image, DISK_BYTES)
        make_directory(self.path)
        owner = self.path.stat()
        options = f"root_owner={owner.st_uid}:{owner.st_gid}"
        # Without blocks that are reserved for root: root fills the disk.
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-E", options, image], check=True)
        mounted = subprocess.run(["mount", "-o", "loop", image, self.path], stderr=subprocess.DEVNULL)
        if mounted.returncode != 0:
            self.path.rmdir()
        return mounted.returncode == 0

    def fill(self) -> None:
        """Occupy all that is free."""
        with self._ballast.open("wb") as file:
            size = 0
            for step in FILL_STEPS:
                with suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), size, step)
                        size += step

    def free(self) -> None:
        """Release what `fill` has occupied."""
        self._ballast.unlink()

    def unmount(self) -> None:
        """Unmount the file system, also while a dying process still uses it."""
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", self.path], check=True)
