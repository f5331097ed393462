"""The execution slots of a worker: which of its requests run, and in which order.

Most requests take milliseconds. A few, such as a search for all candidates of a large cloud, compute for
seconds. The threads of a process share one interpreter lock, so several of these would delay each step of
the others, and they would occupy all threads that run the application.

A request begins in a short slot. There is one for each request that the worker processes at the same time
(`--threads`), one more for reads, and with standbys two more for reads on them. A request that has taken
0.1 s, and has computed or waited for statements for half of it, needs a long slot to continue, and releases
its short slot. There is one long slot, and with standbys a second one for reads on them. A request with a
large body needs a long slot once the body is read. The requests that need one get it in order, for 0.1 s
each. They keep their database connections meanwhile: their number is bounded, so that short requests always
find a connection. One more keeps its short slot for a while, as long as others are free: on a busy machine,
statements take so long that small requests seem long. Then it gets `NoLongSlot`: it drops what it has, waits
without a connection until a long slot is free, and starts again.

A request that waits for others of its worker releases its slot, and gets one again within its deadline.

Only requests that read get the last short slots. Otherwise commits that wait for a standby, or for a lock,
could hold all of them, and nothing could be read. If there are standbys, requests that they can answer have
more short slots and a long slot for themselves: they do not wait for requests that a frozen primary delays.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from threading import BoundedSemaphore

from placement_svc.domain.errors import NoLongSlot, Unavailable
from placement_svc.domain.execution.fair_semaphore import FairSemaphore
from placement_svc.http.environ import READ_METHODS

READ_SLOTS = 1
"""The number of short slots of a worker that only reads can have."""

STANDBY_SLOTS = 2
"""The number of short slots of a worker that only reads on standbys can have, if there are standbys."""

MAX_WAITING = 100
"""Requests of a worker that may wait, each in a thread, because too many others are long."""

MAX_EXTENSIONS = 10
"""How often a request keeps its short slot, for 0.1 s more, because too many others are long."""

SENDING_SECONDS = 0.1
"""Seconds for which a long response is generated in one slot."""

MAX_SENDING_BYTES = 1024 * 1024
"""Bytes at which that slot ends; they are in memory until the client has read them."""

_STANDBY_READ = re.compile(r"^/console(?![^/?])|[?&]stale=ok(?![^&#])")
"""The URIs of reads that standbys answer if there are any."""

_SLOTS_ARE_TAKEN = "Other requests took the time of this one: try again later."

_LONG_SLOTS_ARE_TAKEN = "Other long requests took the time of this one: ask for less, or with a limit."


class Slots:
    """The slots of a worker: `concurrency` short ones for any request, more for reads, and two long ones.

    `reads` short slots are for reads only, and `standby_reads` more for reads on standbys only. These have a
    long slot of their own. At most `max_long` requests use or wait for a long slot while they have a database
    connection.
    """

    def __init__(self, concurrency: int, max_long: int, *, reads: int = 0, standby_reads: int = 0) -> None:
        self.short = BoundedSemaphore(concurrency + reads + standby_reads)
        self.short_primary = BoundedSemaphore(concurrency + reads)
        self.short_writes = BoundedSemaphore(concurrency)
        self.long = FairSemaphore(1)
        self.long_standby = FairSemaphore(1)
        self.long_requests = FairSemaphore(max_long, max_waiting=MAX_WAITING)
        self._has_standbys = standby_reads > 0

    def of_request(self, method: str, uri: str) -> "Slot":
        """Return the slot of a request."""
        is_read = method in READ_METHODS
        on_standby = is_read and self._has_standbys and _STANDBY_READ.search(uri) is not None
        return Slot(self, is_write=not is_read, on_standby=on_standby)


class Slot:
    """The slot of one request; a context in which it runs.

    `on_standby` is true for a read that a standby can answer.
    """

    def __init__(self, slots: Slots, *, is_write: bool = False, on_standby: bool = False) -> None:
        self._slots = slots
        self._long = slots.long_standby if on_standby else slots.long
        primary = [] if on_standby else [slots.short_primary]
        self._short = [*([slots.short_writes] if is_write else []), *primary, slots.short]
        """The semaphores that a short slot acquires, in this order."""
        self._release: Callable[[], None] | None = None
        self._is_counted = False
        self._extensions = 0
        self._has_response = False
        """Whether the response has begun, so that the request has no database connection any more."""
        self.is_long = False

    def __enter__(self) -> "Slot":
        self._acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Release the slot, and the request's place among the long ones with a database connection."""
        self.pause()
        if self._is_counted:
            self._is_counted = False
            self._slots.long_requests.release()

    def _acquire(self, seconds: float = math.inf) -> None:
        """Get a slot within that many seconds; raise `Unavailable` after that."""
        if not self.is_long:
            self._acquire_short(seconds)
            self._release = self._release_short
        elif self._long.acquire(seconds):
            self._release = self._long.release
        else:
            raise Unavailable(_LONG_SLOTS_ARE_TAKEN)

    def _acquire_short(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for number, part in enumerate(self._short):
            timeout = None if end == math.inf else max(0.0, end - time.monotonic())
            if not part.acquire(timeout=timeout):
                for acquired in self._short[:number]:
                    acquired.release()
                raise Unavailable(_SLOTS_ARE_TAKEN)

    def _release_short(self) -> None:
        for part in self._short:
            part.release()

    def _is_short_slot_free(self) -> bool:
        """Return whether another request like this one would get a short slot at once."""
        try:
            self._acquire_short(0)
        except Unavailable:
            return False
        self._release_short()
        return True

    def pause(self) -> None:
        """Release the slot."""
        if self._release is not None:
            self._release()
            self._release = None

    def share(self, seconds: float) -> None:
        """Let other requests run; continue in a long slot within that many seconds.

        If too many requests share the long slots, keep a short slot up to `MAX_EXTENSIONS` times, as long as
        others are free; then raise `NoLongSlot`. Raises `Unavailable` if the time is over.
        """
        if not self._is_counted and not self._has_response:
            if not self._slots.long_requests.acquire(0):
                if self._extensions == MAX_EXTENSIONS or self.is_long or not self._is_short_slot_free():
                    raise NoLongSlot(_LONG_SLOTS_ARE_TAKEN)
                self._extensions += 1
                return
            self._is_counted = True
        self.is_long = True
        self.pause()
        self._acquire(seconds)

    def become_long(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait for a long slot, which the request needs to start again; it has no database connection.

        Raises `Unavailable` if the time or `is_over` ends the wait, or if too many requests wait so.
        """
        self.pause()
        end = time.monotonic() + seconds
        if not self._slots.long_requests.acquire(seconds, is_over):
            raise Unavailable(_LONG_SLOTS_ARE_TAKEN)
        self._is_counted = self.is_long = True
        self._acquire(max(0.0, end - time.monotonic()))

    def resume(self, seconds: float = math.inf, *, is_long: bool = False) -> None:
        """Get a slot again after `pause`, a long one if the last one was or `is_long` is true.

        Raises `Unavailable` after that many seconds.
        """
        self.is_long = self.is_long or is_long
        self._acquire(seconds)

    def pieces(self, response: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a response; those of a long one are generated in slots, and sent without."""
        self._has_response = True
        pieces = iter(response)
        try:
            while generated := self._next_pieces(pieces):
                yield from generated
        finally:
            if hasattr(response, "close"):
                response.close()

    def _next_pieces(self, pieces: Iterator[bytes]) -> list[bytes]:
        """Return the next piece, or those that a long response generates in one slot; none at the end."""
        if self.is_long:
            self._acquire()
        end = time.monotonic() + SENDING_SECONDS
        generated: list[bytes] = []
        size = 0
        try:
            for piece in pieces:
                generated.append(piece)
                size += len(piece)
                if not self.is_long or size >= MAX_SENDING_BYTES or time.monotonic() >= end:
                    break
        finally:
            self.pause()
        return generated
