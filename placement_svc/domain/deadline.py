"""The end of the work for a request: at its time limit, or when the client has disconnected."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from placement_svc.domain.errors import ClientDisconnected, Unavailable

CLIENT_CHECK_INTERVAL = 0.1
"""Seconds between two checks whether the client is still connected, and between two calls of `share_turn`."""

CHECKED_ITEMS = 100
"""Items of `Deadline.checked` between two checks."""

T = TypeVar("T")


@dataclass(slots=True)
class Deadline:
    """A time limit of `seconds`, which ends at `end` (monotonic clock).

    `is_abandoned` returns whether the client has disconnected (None: unknown). `share_turn` lets other
    requests run, for at most as many seconds as it is given. `pause_turn` releases the turn of the request,
    and `resume_turn` gets one again within that many seconds.
    """

    seconds: float
    end: float
    is_abandoned: Callable[[], bool] | None
    next_event: float
    """The time at which `check` has something to do: the end, or the next check of the client."""
    share_turn: Callable[[float], None] | None = None
    pause_turn: Callable[[], None] | None = None
    resume_turn: Callable[[float], None] | None = None

    @classmethod
    def of(
        cls,
        seconds: float,
        is_abandoned: Callable[[], bool] | None = None,
        share_turn: Callable[[float], None] | None = None,
    ) -> "Deadline":
        """Return a deadline that many seconds from now."""
        now = time.monotonic()
        end = now + seconds
        next_event = min(end, now + CLIENT_CHECK_INTERVAL)
        return cls(seconds, end, is_abandoned, next_event, share_turn)

    def check(self) -> None:
        """Raise `Unavailable` if the deadline has passed, `ClientDisconnected` if the client has gone.

        It costs a tenth of a microsecond, so loops can call it at each step.
        """
        if time.monotonic() >= self.next_event:
            self.raise_if_over()
            if self.share_turn is not None:
                self.share_turn(self.end - time.monotonic())
            self.next_event = min(self.end, time.monotonic() + CLIENT_CHECK_INTERVAL)

    def raise_if_over(self) -> None:
        """Raise what `check` raises, without regard to the time of the last check."""
        if time.monotonic() >= self.end:
            raise Unavailable(
                f"The request takes longer than {self.seconds:g} seconds: ask for less, or with a limit."
            )
        if self.is_abandoned is not None and self.is_abandoned():
            raise ClientDisconnected("The client has disconnected.")

    def pause(self) -> None:
        """Let others have the turn of the request, which waits for them."""
        if self.pause_turn is not None:
            self.pause_turn()

    def resume(self) -> None:
        """Get a turn again after `pause`; raise what `check` raises if that takes until the deadline.

        The request has not computed meanwhile, so `check` does not share the turn at once.
        """
        self.raise_if_over()
        if self.resume_turn is not None:
            self.resume_turn(max(0.0, self.remaining()))
        self.next_event = min(self.end, time.monotonic() + CLIENT_CHECK_INTERVAL)

    def remaining(self) -> float:
        """Return the seconds until the end; not more than 0 after it."""
        return self.end - time.monotonic()

    def is_half_over(self) -> bool:
        """Return whether half of the time has passed."""
        return time.monotonic() >= self.end - self.seconds / 2

    def is_over(self) -> bool:
        """Return whether the deadline has passed or the client has disconnected; any thread may call this."""
        return time.monotonic() >= self.end or (self.is_abandoned is not None and self.is_abandoned())

    def checked(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items; check the deadline before the first and each `CHECKED_ITEMS`-th that follows."""
        for number, item in enumerate(items):
            if number % CHECKED_ITEMS == 0:
                self.check()
            yield item
