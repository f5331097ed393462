"""A turn that records what a request does with it."""

from collections.abc import Callable


class RecordedSlot:
    """A `Slot` that is always free, and appends the names of the calls to `events`."""

    def __init__(self, events: list[str], name: str = "") -> None:
        self.events = events
        self._end = f" {name}" if name else ""

    def share(self, seconds: float) -> None:
        self.events.append(f"share{self._end}")

    def pause(self) -> None:
        self.events.append(f"pause{self._end}")

    def resume(self, seconds: float) -> None:
        self.events.append(f"resume{self._end}")

    def become_long(self, seconds: float, is_over: Callable[[], bool]) -> None:
        self.events.append(f"become long{self._end}")

    def leave(self) -> None:
        self.events.append(f"leave{self._end}")
