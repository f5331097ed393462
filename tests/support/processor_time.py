"""Processor time in units that depend as little as possible on the computer."""

import gc
import json
from time import process_time

COUNT = 90_000


def reference_seconds() -> float:
    """Return the processor time of a fixed computation, in seconds.

    It took 0.2 s where the bounds were chosen that are multiples of it.
    """
    gc.disable()
    try:
        started = process_time()
        content = json.dumps(
            [{"name": f"{number:x}", "values": [number, -number]} for number in range(COUNT)]
        )
        assert len(json.loads(content)) == COUNT
        return process_time() - started
    finally:
        gc.enable()
