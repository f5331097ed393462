"""Marshmallow fields of values without members, and the patterns of texts (`docs/spec/http.md 7`).

A field raises a `ValidationError` with one `Violation`: the one to report.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar
from uuid import UUID

import microversion_parse
from marshmallow import ValidationError, fields

from placement_svc.domain.limits import MAX_SUFFIX_LENGTH, UUID_LENGTH
from placement_svc.domain.wording import counted
from placement_svc.schemas.violations import quote, type_error, violation_error

Version = tuple[int, int]
"""A microversion: the major and the minor number."""

ANY_UUID = re.compile(r"(?:urn:|uuid:|[{}])*+(?:-*+[0-9a-fA-F]){32}-*+[{}]*+")
"""The spellings of a uuid in bodies: hyphens at any place, and braces that need not be closed.

With other quantifiers than possessive ones, a long text of braces would take 150 bytes for each of them.
"""

DASHED_UUID_TEXT = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""The usual spelling of a uuid, in any letter case, as a part of other patterns."""

DASHED_UUID = re.compile(DASHED_UUID_TEXT)
DASHED_UUID_KEY = f"^{DASHED_UUID_TEXT}$"
NO_NUL = r"^[^\x00]*$"
NAME_TEXT = "[A-Z0-9_]+"
"""The name of a resource class, of a trait or of a consumer type, as a part of other patterns."""

NAME = f"^{NAME_TEXT}$"
CUSTOM_NAME = f"^CUSTOM_{NAME_TEXT}$"
UUID_KEY = rf"^[0-9a-fA-F-]{{{UUID_LENGTH}}}$"

_SUFFIX_CHARACTER = "[a-zA-Z0-9_-]"

SUFFIX = f"{_SUFFIX_CHARACTER}{{1,{MAX_SUFFIX_LENGTH}}}"
"""The suffix of a request group (since 1.33), as a part of other patterns."""

MAPPING_KEY = f"^{_SUFFIX_CHARACTER}{{0,{MAX_SUFFIX_LENGTH}}}$"
"""The suffix of a request group in the `mappings` of a response; that of the unsuffixed group is empty."""

UUID_HINT = "A uuid consists of 32 hexadecimal digits, with hyphens: 8-4-4-4-12."

HINTS = {
    NO_NUL: "A string cannot contain NUL characters.",
    NAME: "A name consists of the capital letters A to Z, digits and underscores.",
    CUSTOM_NAME: "The name is CUSTOM_, followed by the capital letters A to Z, digits and underscores.",
    UUID_KEY: f"A uuid consists of {UUID_LENGTH} hexadecimal digits and hyphens.",
}
"""Sentences that say which values a pattern accepts, by the pattern."""


class Value(fields.Field[Any]):
    """A field that knows its JSON type."""

    json_type: ClassVar[str]

    def __init__(self, *, since: str | None = None, **options: Any) -> None:
        """Take marshmallow's options, and the microversion that introduced the field."""
        super().__init__(**options)
        self.since = since and microversion_parse.parse_version_string(since)

    def wrong_type(self, value: Any) -> ValidationError:
        """Return the error of a value of another type."""
        return type_error(value, self.json_type, *(["null"] if self.allow_none else []))


class Integer(Value):
    """A whole number. A float without a fraction, such as 5.0, is one as well."""

    json_type = "integer"

    def __init__(self, minimum: int | None = None, maximum: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.minimum = minimum
        self.maximum = maximum

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong_type(value)
        _check_range(value, self.minimum, self.maximum)
        return value


class Boolean(Value):
    """True or false."""

    json_type = "boolean"

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise self.wrong_type(value)
        return value


class Number(Value):
    """A number."""

    json_type = "number"

    def __init__(self, maximum: float | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.maximum = maximum

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.wrong_type(value)
        _check_range(value, None, self.maximum)
        # The database stores -0.0 as 0.0, which the sum is too.
        return float(value) + 0.0


def _check_range(value: float, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and value < minimum:
        raise violation_error("minimum", minimum, f"{value} is less than the minimum of {minimum}", value)
    if maximum is not None and value > maximum:
        raise violation_error("maximum", maximum, f"{value} is greater than the maximum of {maximum}", value)


class String(Value):
    """A string without NUL characters, which PostgreSQL cannot store.

    `hint` is a sentence that says what `pattern` accepts.
    """

    json_type = "string"

    def __init__(
        self,
        *,
        min_length: int = 0,
        max_length: int | None = None,
        pattern: str | None = None,
        hint: str = "",
        choices: Sequence[str] = (),
        uuid: re.Pattern[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.min_length = min_length
        self.max_length = max_length
        self.pattern = pattern
        self.hint = hint or HINTS.get(pattern or "", "")
        self._search = pattern and compile_pattern(pattern).search
        self.choices = list(choices)
        self.uuid = uuid

    def wrong_type(self, value: Any) -> ValidationError:
        """Return the error of a value of another type; a nullable string is two schemas under `anyOf`."""
        if not self.allow_none:
            return super().wrong_type(value)
        schemas = [{"type": self.json_type}, {"type": "null"}]
        reason = f"{quote(value)} is not valid under any of the given schemas"
        return violation_error("anyOf", schemas, reason, value)

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            raise self.wrong_type(value)
        if self._search and not self._search(value):
            raise _pattern_error(self.pattern, value, self.hint)
        if "\x00" in value:
            raise _pattern_error(NO_NUL, value, HINTS[NO_NUL])
        if self.uuid is not None and not self.uuid.fullmatch(value):
            raise violation_error("format", "uuid", f"{quote(value)} is not a 'uuid'", value, hint=UUID_HINT)
        if len(value) < self.min_length:
            raise violation_error("minLength", self.min_length, f"{quote(value)} should be non-empty", value)
        if self.max_length is not None and len(value) > self.max_length:
            hint = f"At most {counted(self.max_length, 'character')}."
            raise violation_error(
                "maxLength", self.max_length, f"{quote(value)} is too long", value, hint=hint
            )
        if self.choices and value not in self.choices:
            raise violation_error("enum", self.choices, f"{quote(value)} is not one of {self.choices}", value)
        return value


def _pattern_error(pattern: str | None, value: str, hint: str) -> ValidationError:
    reason = f"{quote(value)} does not match {pattern!r}"
    return violation_error("pattern", pattern, reason, value, hint=hint)


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which, unlike in Python, `$` matches only at the very end."""
    return re.compile(pattern.replace("$", r"\Z"))


def matches(pattern: str, value: str) -> bool:
    """Return whether `pattern` occurs in `value`; unlike in Python, `$` matches only at the very end."""
    return compile_pattern(pattern).search(value) is not None


def normalized_uuid(text: str) -> str:
    """Return a text that matches `ANY_UUID` in the spelling in which uuids are stored."""
    return str(UUID(text))
