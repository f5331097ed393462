"""The percentages in the reports of commands."""

import pytest

from placement_svc.commands.report import percent


@pytest.mark.parametrize(
    ("used", "capacity", "text"),
    [
        (0, 10, "0%"),
        (1, 1_000_000, "<1%"),
        (1, 101, "<1%"),
        (1, 100, "1%"),
        (999, 1000, "99%"),
        (10, 10, "100%"),
        (15, 10, "150%"),
        (1, 0, "-"),
    ],
)
def test_percentage_of_something_used_is_not_zero(used: int, capacity: int, text: str) -> None:
    assert percent(used, capacity) == text
