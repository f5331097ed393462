"""The end of the work for a request: at its time limit, or when the client has disconnected."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from placement_svc.domain.errors import ClientDisconnected, NoLongSlot, Unavailable
from placement_svc.domain.execution.fair_semaphore import FairSemaphore
from placement_svc.domain.wording import counted

CLIENT_CHECK_INTERVAL = 0.1
"""Seconds between two checks whether the client is still connected, and between two calls of `Slot.share`."""

ADVICE = "ask for less, or with a limit"
"""What the client of a read can do if the time does not suffice."""

MIN_WORK = CLIENT_CHECK_INTERVAL / 2
"""Seconds of work after which a request shares its slot.

On a busy machine, or with many threads that need the interpreter lock, a request can take more than
`CLIENT_CHECK_INTERVAL` although it has done almost nothing. It must not wait for those that work for long.
"""

CHECKED_ITEMS = 100
"""Items of `Deadline.checked` between two checks."""

T = TypeVar("T")


class Slot(Protocol):
    """The permission of a request to compute, which the requests of a process share.

    The methods that get a slot raise `Unavailable` if that takes longer than `seconds`.
    """

    def share(self, seconds: float) -> None:
        """Let other requests run if they need it, then continue; raise `NoLongSlot` if too many are long."""

    def pause(self) -> None:
        """Release the slot: the request waits for other requests."""

    def resume(self, seconds: float) -> None:
        """Get a slot again after `pause`."""

    def become_long(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Release the slot, and wait for a long one, also while too many others are long.

        The request needs no database connection meanwhile. The wait ends early if `is_over` returns True.
        """

    def leave(self) -> None:
        """Release the slot until `become_long`, and the place among long requests with a connection."""


@dataclass(slots=True)
class Deadline:
    """A time limit of `seconds`, which ends at `end` (monotonic clock).

    `is_abandoned` returns whether the client has disconnected (None: unknown). `slot` is the slot of the
    request, None if it need not share one. `advice` is what the client can do if the time does not suffice.
    `work_seconds` returns a time that passes only while the request works.
    """

    seconds: float
    end: float
    is_abandoned: Callable[[], bool] | None
    next_event: float
    """The time at which `check` has something to do: the end, or the next check of the client."""
    slot: Slot | None = None
    advice: str = ADVICE
    work_seconds: Callable[[], float] = time.thread_time
    slot_started: float = 0.0
    """What `work_seconds` returned when the request last got its slot."""

    @classmethod
    def of(
        cls,
        seconds: float,
        is_abandoned: Callable[[], bool] | None = None,
        slot: Slot | None = None,
        work_seconds: Callable[[], float] = time.thread_time,
    ) -> "Deadline":
        """Return a deadline that many seconds from now."""
        end = time.monotonic() + seconds
        deadline = cls(seconds, end, is_abandoned, end, slot, work_seconds=work_seconds)
        deadline._slot_starts()
        return deadline

    def check(self) -> None:
        """Raise `Unavailable` if the deadline has passed, `ClientDisconnected` if the client has gone.

        A request that has worked for `MIN_WORK` seconds also releases its slot, and waits for another one.
        That raises `NoLongSlot` if too many requests are long, which only `run` may catch. A check costs a
        tenth of a microsecond, so loops can call it at each step.
        """
        if time.monotonic() >= self.next_event:
            self.raise_if_over()
            if self.slot is not None and self.work_seconds() - self.slot_started >= MIN_WORK:
                self.slot.share(self.end - time.monotonic())
                self._slot_starts()
            else:
                self._set_next_event()

    def raise_if_over(self) -> None:
        """Raise what `check` raises, without regard to the time of the last check."""
        if time.monotonic() >= self.end:
            raise Unavailable(
                f"The request takes longer than {counted(self.seconds, 'second')}: {self.advice}."
            )
        if self.is_abandoned is not None and self.is_abandoned():
            raise ClientDisconnected("The client has disconnected.")

    def pause(self) -> None:
        """Release the slot of the request while it waits for others."""
        if self.slot is not None:
            self.slot.pause()

    def resume(self) -> None:
        """Get a slot again after `pause`; raise what `check` raises if that takes until the deadline.

        The request has not computed meanwhile, so `check` does not share the slot at once.
        """
        self.raise_if_over()
        if self.slot is not None:
            self.slot.resume(max(0.0, self.remaining()))
        self._slot_starts()

    def wait_for(self, semaphore: FairSemaphore) -> None:
        """Get a semaphore; others have the slot of the request while it waits.

        Raises what `check` raises if that takes until the deadline.
        """
        if semaphore.acquire(0):
            return
        self.pause()
        is_acquired = semaphore.acquire(self.remaining(), self.is_over)
        try:
            # Without the semaphore, this raises an error, because the deadline is over.
            self.resume()
        except BaseException:
            if is_acquired:
                semaphore.release()
            raise

    def run(self, read: Callable[[], T]) -> T:
        """Return what `read` returns; if it raises `NoLongSlot`, run it again with a long slot.

        `read` must change nothing, and hold nothing while it does not run.
        """
        try:
            return read()
        except NoLongSlot:
            # The wait begins after this block, in which the error still refers to what was read.
            pass
        self._become_long()
        return read()

    def acquire(self, semaphore: FairSemaphore, refusal: str) -> None:
        """Get a semaphore, without a slot meanwhile, and then a long slot; raise what `check` raises.

        Raises `Unavailable` with the message `refusal` if too many requests wait for the semaphore. The
        request has no database connection.
        """
        if self.slot is not None:
            self.slot.leave()
        if not semaphore.acquire(self.remaining(), self.is_over):
            self.raise_if_over()
            raise Unavailable(refusal)
        try:
            self._become_long()
        except BaseException:
            semaphore.release()
            raise

    def _become_long(self) -> None:
        self.raise_if_over()
        if self.slot is not None:
            try:
                self.slot.become_long(self.remaining(), self.is_over)
            except Unavailable:
                self.raise_if_over()
                raise
        self._slot_starts()

    def _slot_starts(self) -> None:
        self.slot_started = self.work_seconds()
        self._set_next_event()

    def _set_next_event(self) -> None:
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

    def checked(self, items: Iterable[T]) -> Iterable[T]:
        """Return the items; check the deadline before the first and each `CHECKED_ITEMS`-th that follows.

        A list of at most `CHECKED_ITEMS` is returned unchanged: a generator would take longer than the check.
        """
        if isinstance(items, (list, tuple)) and len(items) <= CHECKED_ITEMS:
            self.check()
            return items
        return self._checked(items)

    def _checked(self, items: Iterable[T]) -> Iterator[T]:
        for number, item in enumerate(items):
            if number % CHECKED_ITEMS == 0:
                self.check()
            yield item
