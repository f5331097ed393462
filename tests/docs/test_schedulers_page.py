"""The examples of docs/schedulers.md have the responses that the page shows."""

from pathlib import Path

from tests.support.documented_calls import check_examples

FILE = Path(__file__).parents[2] / "docs/schedulers.md"


def test_examples_have_the_documented_responses(live: str) -> None:
    check_examples(FILE, live)
