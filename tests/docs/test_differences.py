"""Every deliberate difference from the reference is documented."""

from pathlib import Path

from tests.differential.known import KNOWN_DIFFERENCES

DOCUMENT = "docs/differences.md"


def test_differences_are_documented() -> None:
    text = (Path(__file__).parents[2] / DOCUMENT).read_text()
    meant = [known.name for known in KNOWN_DIFFERENCES if known.source == DOCUMENT]
    assert meant
    assert [name for name in meant if name not in text] == []
