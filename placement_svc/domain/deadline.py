"""How long a request may take."""

import time
from dataclasses import dataclass

from placement_svc.domain.errors import Unavailable


@dataclass(frozen=True)
class Deadline:
    """A request's end: `seconds` after `start`, by the monotonic clock."""

    seconds: float
    start: float

    @classmethod
    def of(cls, seconds: float) -> "Deadline":
        """Return a deadline that is as many seconds from now."""
        return cls(seconds, time.monotonic())

    def check(self) -> None:
        """Raise `Unavailable` if the time is up."""
        if time.monotonic() - self.start > self.seconds:
            raise Unavailable(
                f"The request takes longer than {self.seconds:g} seconds: ask for less, or with a limit."
            )
