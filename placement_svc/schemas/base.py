"""Marshmallow schemas and fields that word errors like a JSON Schema validator (`docs/spec/http.md 7`).

A field raises a `ValidationError` with a list of `Violation`s. A container collects the violations of its
members and puts their place in front of each path. `check` reports the shallowest violation.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Self

import marshmallow
import microversion_parse
from marshmallow import RAISE, ValidationError, fields

from placement_svc.domain.errors import Invalid
from placement_svc.domain.limits import UUID_LENGTH
from placement_svc.schemas.violations import Violation, quote, type_error, violation_error

_REQUIRED, _NULL, _UNKNOWN = "required", "null", "unknown"
"""Markers for what marshmallow itself detects, used in place of its error messages."""

UUID = re.compile(r"(urn:|uuid:|[{}])*(-*[0-9a-fA-F]){32}-*[{}]*")
"""Every spelling that `uuid.UUID` accepts: hyphens at any place, and braces that need not be closed."""

DASHED_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NAME = r"^[A-Z0-9_]+$"
CUSTOM_NAME = r"^CUSTOM_[A-Z0-9_]+$"
UUID_KEY = rf"^[0-9a-fA-F-]{{{UUID_LENGTH}}}$"


class Value(fields.Field[Any]):
    """A field that knows its JSON type."""

    json_type: ClassVar[str]
    default_error_messages = {  # noqa: RUF012
        "required": _REQUIRED,
        "null": _NULL,
    }

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
        return float(value)


def _check_range(value: float, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and value < minimum:
        raise violation_error("minimum", minimum, f"{value} is less than the minimum of {minimum}", value)
    if maximum is not None and value > maximum:
        raise violation_error("maximum", maximum, f"{value} is greater than the maximum of {maximum}", value)


class String(Value):
    """A string without NUL characters, which PostgreSQL cannot store."""

    json_type = "string"

    def __init__(
        self,
        *,
        min_length: int = 0,
        max_length: int | None = None,
        pattern: str | None = None,
        choices: Sequence[str] = (),
        uuid: re.Pattern[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.min_length = min_length
        self.max_length = max_length
        self.pattern = pattern
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
        for pattern in filter(None, (self.pattern, r"^[^\x00]*$")):
            if not matches(pattern, value):
                raise violation_error("pattern", pattern, f"{quote(value)} does not match {pattern!r}", value)
        if len(value) < self.min_length:
            raise violation_error("minLength", self.min_length, f"{value!r} should be non-empty", value)
        if self.max_length is not None and len(value) > self.max_length:
            raise violation_error("maxLength", self.max_length, f"{quote(value)} is too long", value)
        if self.choices and value not in self.choices:
            raise violation_error("enum", self.choices, f"{quote(value)} is not one of {self.choices}", value)
        if self.uuid is not None and not self.uuid.fullmatch(value):
            raise violation_error("format", "uuid", f"{quote(value)} is not a 'uuid'", value)
        return value


def matches(pattern: str, value: str) -> bool:
    """Return whether `pattern` occurs in `value`; unlike in Python, `$` matches only at the very end."""
    return re.search(pattern.replace("$", r"\Z"), value) is not None


class Array(Value):
    """A list whose items share one field."""

    json_type = "array"

    def __init__(self, item: Value, *, min_items: int = 0, unique: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.item = item
        self.min_items = min_items
        self.unique = unique

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.wrong_type(value)
        if len(value) < self.min_items:
            raise violation_error("minItems", self.min_items, f"{value!r} should be non-empty", value)
        loaded, violations = [], []
        for index, item in enumerate(value):
            loaded_item, item_violations = validate(self.item, item)
            loaded.append(loaded_item)
            violations += [violation.under(("items",), index) for violation in item_violations]
        if self.unique and len(set(map(quote, value))) < len(value):
            reason = f"{quote(value)} has non-unique elements"
            violations.append(Violation("uniqueItems", True, reason, value))
        if violations:
            raise ValidationError(violations)
        return loaded


class Map(Value):
    """An object whose keys match a pattern and whose values share one field.

    With `closed=False`, members whose keys do not match are loaded unchecked.
    """

    json_type = "object"

    def __init__(
        self, pattern: str, value: Value, *, min_members: int = 0, closed: bool = True, **options: Any
    ) -> None:
        super().__init__(**options)
        self.pattern = pattern
        self.value = value
        self.min_members = min_members
        self.closed = closed

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong_type(value)
        if len(value) < self.min_members:
            raise violation_error("minProperties", self.min_members, f"{value!r} should be non-empty", value)
        loaded, violations, unmatched_keys = {}, [], []
        for key, member in value.items():
            if not matches(self.pattern, key):
                unmatched_keys.append(key)
                loaded[key] = member
                continue
            loaded[key], member_violations = validate(self.value, member)
            violations += [v.under(("patternProperties", self.pattern), key) for v in member_violations]
        if unmatched_keys and self.closed:
            keys = ", ".join(quote(key) for key in sorted(unmatched_keys))
            verb = "does" if len(unmatched_keys) == 1 else "do"
            reason = f"{keys} {verb} not match any of the regexes: {self.pattern!r}"
            violations.append(Violation("additionalProperties", False, reason, value))
        if violations:
            raise ValidationError(violations)
        return loaded


class Object(Value):
    """An object that a `Schema` describes."""

    json_type = "object"

    def __init__(self, schema: "Schema", **options: Any) -> None:
        super().__init__(**options)
        self.schema = schema

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, Mapping):
            raise self.wrong_type(value)
        try:
            return self.schema.load(value)
        except ValidationError as error:
            violations = self.schema.violations(value, error.messages)  # type: ignore[arg-type]
            raise ValidationError(list(violations)) from None


class Schema(marshmallow.Schema):
    """A closed JSON object: it has the declared fields and no others."""

    error_messages = {  # noqa: RUF012
        "unknown": _UNKNOWN
    }

    class Meta:
        """Make marshmallow report the keys that no field declares."""

        unknown = RAISE

    @classmethod
    @cache
    def at(cls, version: tuple[int, int]) -> Self:
        """Return the schema with the fields of a microversion."""
        return cls(
            exclude=[
                name
                for name, field in cls._declared_fields.items()
                if isinstance(field, Value) and field.since and version < field.since
            ]
        )

    def violations(self, value: Mapping[str, Any], messages: dict[str, list[Any]]) -> Iterable[Violation]:
        """Yield the violations that the messages of a failed `load` of `value` stand for.

        First come those of properties, then those of `required`, then that of `additionalProperties`.
        """
        for key, field in self.fields.items():
            for message in messages.get(key, ()):
                if message == _NULL:
                    message = field.wrong_type(None).messages[0]  # type: ignore[attr-defined]
                if isinstance(message, Violation):
                    yield message.under(("properties", key), key)
        required = [key for key, field in self.fields.items() if field.required]
        for key in required:
            if _REQUIRED in messages.get(key, ()):
                yield Violation("required", required, f"{key!r} is a required property", value)
        unknown_keys = sorted(key for key, key_messages in messages.items() if _UNKNOWN in key_messages)
        if unknown_keys:
            verb = "was" if len(unknown_keys) == 1 else "were"
            keys = ", ".join(quote(key) for key in unknown_keys)
            reason = f"Additional properties are not allowed ({keys} {verb} unexpected)"
            yield Violation("additionalProperties", False, reason, value)

    def check(self, value: Any, prefix: str = "JSON does not validate: ") -> Any:
        """Return `value` as this schema loads it; raise `Invalid` with the shallowest violation."""
        return check(Object(self), value, prefix)


def validate(field: Value, value: Any) -> tuple[Any, list[Violation]]:
    """Return `value` as `field` loads it and no violations, or None and all violations."""
    if value is None and not field.allow_none:
        return None, field.wrong_type(value).messages  # type: ignore[return-value]
    try:
        return field.deserialize(value), []
    except ValidationError as error:
        return None, error.messages  # type: ignore[return-value]


def check(field: Value, value: Any, prefix: str = "JSON does not validate: ") -> Any:
    """Return `value` as `field` loads it.

    Raise `Invalid` with the shallowest violation; of several at one depth, the last by its path.
    """
    loaded, violations = validate(field, value)
    if violations:
        raise Invalid(f"{prefix}{max(violations, key=lambda v: (-len(v.instance), v.instance))}")
    return loaded
