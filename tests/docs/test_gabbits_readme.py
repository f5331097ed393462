"""The table in `gabbits/README.md` names existing files only."""

import re
from pathlib import Path

from tests.api.test_gabbits import GABBITS

README = (GABBITS / "README.md").read_text()


def test_every_gabbit_is_named() -> None:
    assert [file.name for file in sorted(GABBITS.glob("*.yaml")) if f"`{file.name}`" not in README] == []


def test_every_file_named_is_there() -> None:
    named = {GABBITS / name for name in re.findall(r"`([\w-]+\.yaml)`", README)}
    named |= {Path(__file__).parents[2] / name for name in re.findall(r"`(tests/[\w/]+\.py)`", README)}
    assert named
    assert [str(path) for path in sorted(named) if not path.is_file()] == []


def test_every_gabbit_says_first_what_it_is_about() -> None:
    assert [
        file.name for file in sorted(GABBITS.glob("*.yaml")) if not file.read_text().startswith("# ")
    ] == []
