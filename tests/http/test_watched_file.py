import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from placement_svc.domain.errors import SetupError
from placement_svc.http.watched_file import WatchedFile


class Reader:
    """A reader of text files that rejects a file that begins with `broken`; `reads` counts its calls."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, path: Path) -> str:
        self.reads += 1
        if not path.exists() or path.read_text().startswith("broken"):
            raise SetupError(f"{path} is broken")
        return path.read_text()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("one")
    return path


def test_file_is_read_once_until_it_changes(path: Path) -> None:
    reader = Reader()
    file = WatchedFile(path, reader)
    assert [file.value() for _ in range(3)] == ["one"] * 3
    assert reader.reads == 1
    path.write_text("two two")
    assert [file.value() for _ in range(3)] == ["two two"] * 3
    assert reader.reads == 2


def test_replaced_file_is_reloaded(path: Path, tmp_path: Path) -> None:
    file = WatchedFile(path, Reader())
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").rename(path)
    assert file.value() == "two"


def test_concurrent_readers_reload_the_file_once(path: Path) -> None:
    reader, barrier = Reader(), threading.Barrier(8)
    file = WatchedFile(path, reader)

    def get_value(_: int) -> str:
        barrier.wait()
        return file.value()

    path.write_text("two two")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(get_value, range(8))) == ["two two"] * 8
    assert reader.reads == 2


def test_each_invalid_change_is_logged_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = WatchedFile(path, Reader())
    for content in ("broken", "broken again", None):
        path.write_text(content) if content else path.unlink()
        with caplog.at_level(logging.ERROR):
            assert [file.value() for _ in range(3)] == ["one"] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} is broken; its previous content stays in effect"
    ] * 3
    path.write_text("two")
    assert file.value() == "two"


def test_initially_invalid_file_raises(path: Path) -> None:
    path.write_text("broken")
    with pytest.raises(SetupError):
        WatchedFile(path, Reader())
