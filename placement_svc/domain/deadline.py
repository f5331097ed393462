"""The time limit of a request."""

import time
from dataclasses import dataclass

from placement_svc.domain.errors import Unavailable


@dataclass(frozen=True)
class Deadline:
    """A time limit of `seconds` after `start` (monotonic clock)."""

    seconds: float
    start: float

    @classmethod
    def of(cls, seconds: float) -> "Deadline":
        """Return a deadline that many seconds from now."""
        return cls(seconds, time.monotonic())

    def check(self) -> None:
        """Raise `Unavailable` if the deadline has passed."""
        if time.monotonic() - self.start > self.seconds:
            raise Unavailable(
                f"The request takes longer than {self.seconds:g} seconds: ask for less, or with a limit."
            )
