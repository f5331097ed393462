"""How much memory a search needs by its own account."""

from collections.abc import Callable

from placement_svc.domain.errors import Invalid
from placement_svc.domain.execution.memory import MemoryBudget

PRECISION = 1 << 10


def least_memory(search: Callable[[MemoryBudget], object], most: int) -> int:
    """Return the limit of a budget with which a search succeeds, at most `PRECISION` above the least one.

    It succeeds with `most`.
    """
    too_little, enough = 0, most
    while enough - too_little > PRECISION:
        middle = (enough + too_little) // 2
        if succeeds(search, middle):
            enough = middle
        else:
            too_little = middle
    return enough


def succeeds(search: Callable[[MemoryBudget], object], limit: int) -> bool:
    """Return whether a search succeeds with a budget of this limit."""
    try:
        search(MemoryBudget(limit))
    except Invalid:
        return False
    return True
