"""The signals that stop a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Make the first signal that stops a command raise `KeyboardInterrupt` in the block.

    Further ones are ignored, so that everything is cleaned up. Only the main thread can enter the block.
    """
    # The shell of a script makes background jobs ignore SIGINT, so the handler is set explicitly.
    numbers = [signal.SIGINT, signal.SIGTERM]
    # After nohup, the command must survive the end of its terminal.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    is_stopped = False

    def stop(*_: object) -> None:
        nonlocal is_stopped
        if not is_stopped:
            is_stopped = True
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            # Python restores the default handlers while it exits, but keeps signals ignored.
            signal.signal(number, signal.SIG_IGN if is_stopped else handler)
