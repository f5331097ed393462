"""Violations: the ways in which a value breaks a schema, worded as by a JSON Schema validator.

The wording is part of the API (`docs/spec/http.md 7`): a keyword, a sentence, the path to the rule in
the schema, and the path to the value in the document.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from marshmallow import ValidationError

MAX_QUOTE = 1000
"""The most characters of a client's own data that an error quotes."""


MAX_DEPTH = 200
"""The most levels of a nested value that an error quotes."""


def quote(value: Any) -> str:
    """Return `value` as an error shows it, cut to `MAX_QUOTE` characters.

    The cost does not depend on the size of the value: only what is shown is converted to text.
    """
    pieces: list[str] = []
    try:
        _append_pieces(pieces, value, remaining=MAX_QUOTE + 1, depth=0)
    except RecursionError:
        return "a deeply nested value"
    text = "".join(pieces)
    return text if len(text) <= MAX_QUOTE else text[:MAX_QUOTE] + "..."


def _append_pieces(pieces: list[str], value: Any, *, remaining: int, depth: int) -> int:
    """Append the beginning of `repr(value)`, up to `remaining` characters or more; return how many remain."""
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, list):
        remaining = _append(pieces, "[", remaining)
        for index, item in enumerate(value):
            if remaining <= 0:
                return remaining
            if index:
                remaining = _append(pieces, ", ", remaining)
            remaining = _append_pieces(pieces, item, remaining=remaining, depth=depth + 1)
        return _append(pieces, "]", remaining)
    if isinstance(value, dict):
        remaining = _append(pieces, "{", remaining)
        for index, (key, member) in enumerate(value.items()):
            if remaining <= 0:
                return remaining
            if index:
                remaining = _append(pieces, ", ", remaining)
            remaining = _append_pieces(pieces, key, remaining=remaining, depth=depth + 1)
            remaining = _append(pieces, ": ", remaining)
            remaining = _append_pieces(pieces, member, remaining=remaining, depth=depth + 1)
        return _append(pieces, "}", remaining)
    return _append(pieces, repr(value[:remaining] if isinstance(value, str) else value), remaining)


def _append(pieces: list[str], text: str, remaining: int) -> int:
    pieces.append(text)
    return remaining - len(text)


def _format_path(keys: Iterable[str | int]) -> str:
    return "".join(f"[{quote(key)}]" for key in keys)


@dataclass(frozen=True)
class Violation:
    """One rule that a value breaks.

    `keyword` and `rule` are the JSON Schema keyword and its value. `reason` says why `value` breaks the
    rule. `schema` is the path to the rule in the schema, `instance` the path to the value in the document.
    `hint` is a sentence that says what would be right. If the value `is_unspecified`, JSON Schema would not
    check it, so any other violation is reported instead.
    """

    keyword: str
    rule: Any
    reason: str
    value: Any
    schema: tuple[str | int, ...] = ()
    instance: tuple[str | int, ...] = ()
    hint: str = ""
    is_unspecified: bool = False

    def under(self, schema: tuple[str | int, ...], *instance: str | int) -> "Violation":
        """Return this violation with the paths of its container put in front of its own."""
        return replace(self, schema=schema + self.schema, instance=instance + self.instance)

    def __str__(self) -> str:
        text = (
            f"{self.reason}  Failed validating {self.keyword!r} in schema{_format_path(self.schema)}: "
            f"{ {self.keyword: self.rule} }  On instance{_format_path(self.instance)}: {quote(self.value)}"
        )
        return f"{text}  {self.hint}" if self.hint else text


def violation_error(keyword: str, rule: Any, reason: str, value: Any, *, hint: str = "") -> ValidationError:
    """Return a marshmallow error with one violation."""
    return ValidationError([Violation(keyword, rule, reason, value, hint=hint)])


def type_error(value: Any, *types: str) -> ValidationError:
    """Return the error of a value that has none of the JSON `types`."""
    names = ", ".join(repr(name) for name in types)
    rule = types[0] if len(types) == 1 else list(types)
    return violation_error("type", rule, f"{quote(value)} is not of type {names}", value)


class WorstViolation:
    """The violation to report of a container's members: the shallowest; of these, the greatest path.

    One that `is_unspecified` comes last.
    """

    def __init__(self) -> None:
        self.violation: Violation | None = None
        self.count = 0

    def add(self, violation: Violation) -> None:
        """Count `violation`, and keep it if it is to be reported instead of the one before."""
        self.count += 1
        if self.violation is None or _rank(violation) > _rank(self.violation):
            self.violation = violation


def _rank(violation: Violation) -> tuple[bool, int, tuple[str | int, ...]]:
    return not violation.is_unspecified, -len(violation.instance), violation.instance
