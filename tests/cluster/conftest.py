"""The cluster of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.patroni_cluster import PATRONI, PatroniCluster, create_database, patroni_cluster


@pytest.fixture(scope="module")
def cluster(passable_dir: Path) -> Iterator[PatroniCluster]:
    """The cluster, with the database and its schema."""
    assert PATRONI.exists(), "run tests/cluster/install first"
    with patroni_cluster(passable_dir) as running:
        create_database(running)
        yield running


@pytest.fixture
def directory(passable_dir: Path) -> Path:
    """A directory for nginx, whose workers run as another user."""
    path = passable_dir / "nginx"
    path.mkdir(mode=0o711)
    return path
