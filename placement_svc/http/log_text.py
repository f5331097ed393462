"""The maximum length of a text in the log."""

import json
from bisect import bisect_right

MAX_LENGTH = 2048
"""Bytes of a text in a JSON log record, escaped and including the mark of a cut."""

_MAX_MARK = 40
"""Bytes of the mark."""

_MAX_CHARACTER = 12
"""Bytes of one character: an escaped pair of surrogates."""


def for_log(text: str) -> str:
    """Return `text`, cut and marked if it needs more than `MAX_LENGTH` bytes in a log record."""
    if len(text) <= MAX_LENGTH // _MAX_CHARACTER:
        return text
    if len(text) <= MAX_LENGTH and _written_length(text) <= MAX_LENGTH:
        return text
    kept = bisect_right(
        range(1, MAX_LENGTH), MAX_LENGTH - _MAX_MARK, key=lambda length: _written_length(text[:length])
    )
    return f"{text[:kept]}... (cut: {len(text)} characters)"


def _written_length(text: str) -> int:
    return len(json.dumps(text)) - len('""')
