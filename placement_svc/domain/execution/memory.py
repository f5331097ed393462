"""The bound on the memory of a search for allocation candidates."""

from placement_svc.domain.errors import Invalid

MEGABYTE = 1024 * 1024


class MemoryBudget:
    """The memory that a search may use, in bytes, and how much of it is reserved.

    The sizes are estimates: what Python needs for the objects of one kind, times their number.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0

    def try_reserve(self, size: int) -> bool:
        """Reserve `size` bytes, and return True; return False if the limit leaves fewer."""
        if self.reserved + size > self.limit:
            return False
        self.reserved += size
        return True

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes; raise `Invalid` if the limit leaves fewer."""
        # Without a call of `try_reserve`, as searches reserve memory for each anchor and each candidate.
        self.reserved += size
        if self.reserved > self.limit:
            self.reserved -= size
            raise Invalid(
                f"This search needs more than {self.limit / MEGABYTE:g} MB of memory: ask for fewer groups,"
                " with more conditions, or for fewer candidates by a lower limit."
            )

    def release(self, size: int) -> None:
        """Release `size` reserved bytes."""
        self.reserved -= size
