"""Marshmallow schemas and fields that refuse in the words of JSON Schema (`docs/spec/http.md 7`).

Clients know the API's refusals as those of a JSON Schema validator: a keyword, a sentence, and where
in the schema and in the document. A field here raises `Violation`s, a container puts its own place
in front of theirs, and `Document.check` reports the shallowest one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self

import microversion_parse
from marshmallow import RAISE, Schema, ValidationError, fields

from placement_svc.domain.errors import Invalid
from placement_svc.domain.limits import UUID_LENGTH

LONGEST_QUOTE = 1000
"""Characters of a client's own data that an error quotes at most."""

_REQUIRED, _NULL, _UNKNOWN = "required", "null", "unknown"
"""What marshmallow itself notices, by the error messages it is given for that."""

UUID = re.compile(r"(urn:|uuid:|[{}])*(-*[0-9a-fA-F]){32}-*[{}]*")
"""What `uuid.UUID` reads as one: the dashes may be anywhere, and a brace need not be closed."""

DASHED_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NAME = r"^[A-Z0-9_]+$"
CUSTOM_NAME = r"^CUSTOM_[A-Z0-9_]+$"
UUID_KEY = rf"^[0-9a-fA-F-]{{{UUID_LENGTH}}}$"


def _quote(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = "a deeply nested value"
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "..."


def _path(steps: Iterable[str | int]) -> str:
    return "".join(f"[{step!r}]" for step in steps)


@dataclass(frozen=True)
class Violation:
    """One rule that a document breaks.

    `keyword` and `rule` are the rule, `reason` says what is wrong with `value`; `schema` and
    `instance` lead to the rule and to the value.
    """

    keyword: str
    rule: Any
    reason: str
    value: Any
    schema: tuple[str | int, ...] = ()
    instance: tuple[str | int, ...] = ()

    def under(self, schema: tuple[str | int, ...], *instance: str | int) -> "Violation":
        """Return this violation as the container sees it in which it stands."""
        return replace(self, schema=schema + self.schema, instance=instance + self.instance)

    def __str__(self) -> str:
        return (
            f"{self.reason}  Failed validating {self.keyword!r} in schema{_path(self.schema)}: "
            f"{ {self.keyword: self.rule} }  On instance{_path(self.instance)}: {_quote(self.value)}"
        )


def refuse(keyword: str, rule: Any, reason: str, value: Any) -> ValidationError:
    """Return the error of a value that breaks one rule."""
    return ValidationError([Violation(keyword, rule, reason, value)])


def _not_of_type(value: Any, *types: str) -> ValidationError:
    names = ", ".join(repr(name) for name in types)
    return refuse(
        "type", types[0] if len(types) == 1 else list(types), f"{_quote(value)} is not of type {names}", value
    )


class Value(fields.Field[Any]):
    """A field that says of which JSON type it is."""

    json_type: ClassVar[str]
    default_error_messages = {  # noqa: RUF012
        "required": _REQUIRED,
        "null": _NULL,
    }

    def __init__(self, *, since: str | None = None, until: str | None = None, **options: Any) -> None:
        """Take marshmallow's options, and the first and the last microversion that knows the field."""
        super().__init__(**options)
        self.since = since and microversion_parse.parse_version_string(since)
        self.until = until and microversion_parse.parse_version_string(until)

    def wrong_type(self, value: Any) -> ValidationError:
        """Return the error of a value of another type."""
        return _not_of_type(value, self.json_type, *(["null"] if self.allow_none else []))


class Integer(Value):
    """A whole number, also when it is written 5.0."""

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
        raise refuse("minimum", minimum, f"{value} is less than the minimum of {minimum}", value)
    if maximum is not None and value > maximum:
        raise refuse("maximum", maximum, f"{value} is greater than the maximum of {maximum}", value)


class String(Value):
    """A text; never one with a NUL, which PostgreSQL cannot store."""

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
        """Return the error of a value of another type: a text or null are two schemas, it fits neither."""
        if not self.allow_none:
            return super().wrong_type(value)
        either = [{"type": self.json_type}, {"type": "null"}]
        return refuse("anyOf", either, f"{_quote(value)} is not valid under any of the given schemas", value)

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            raise self.wrong_type(value)
        for pattern in filter(None, (self.pattern, r"^[^\x00]*$")):
            if not matches(pattern, value):
                raise refuse("pattern", pattern, f"{_quote(value)} does not match {pattern!r}", value)
        if len(value) < self.min_length:
            raise refuse("minLength", self.min_length, f"{value!r} should be non-empty", value)
        if self.max_length is not None and len(value) > self.max_length:
            raise refuse("maxLength", self.max_length, f"{_quote(value)} is too long", value)
        if self.choices and value not in self.choices:
            raise refuse("enum", self.choices, f"{_quote(value)} is not one of {self.choices}", value)
        if self.uuid is not None and not self.uuid.fullmatch(value):
            raise refuse("format", "uuid", f"{_quote(value)} is not a 'uuid'", value)
        return value


def matches(pattern: str, value: str) -> bool:
    """Tell whether `pattern` is found in `value`; `$` is its very end and forgives no newline."""
    return re.search(pattern.replace("$", r"\Z"), value) is not None


class Array(Value):
    """A list of values of one kind."""

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
            raise refuse("minItems", self.min_items, f"{value!r} should be non-empty", value)
        loaded, found = [], []
        for index, item in enumerate(value):
            result, violations = _load(self.item, item)
            loaded.append(result)
            found += [violation.under(("items",), index) for violation in violations]
        if self.unique and len(set(map(_quote, value))) < len(value):
            found.append(Violation("uniqueItems", True, f"{_quote(value)} has non-unique elements", value))
        if found:
            raise ValidationError(found)
        return loaded


class Map(Value):
    """An object whose keys follow a pattern and whose values are of one kind.

    With `closed=False`, keys off the pattern are let through as they are.
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
            raise refuse("minProperties", self.min_members, f"{value!r} should be non-empty", value)
        loaded, found, strangers = {}, [], []
        for key, member in value.items():
            if not matches(self.pattern, key):
                strangers.append(key)
                loaded[key] = member
                continue
            loaded[key], violations = _load(self.value, member)
            found += [v.under(("patternProperties", self.pattern), key) for v in violations]
        if strangers and self.closed:
            keys = ", ".join(_quote(key) for key in sorted(strangers))
            verb = "does" if len(strangers) == 1 else "do"
            reason = f"{keys} {verb} not match any of the regexes: {self.pattern!r}"
            found.append(Violation("additionalProperties", False, reason, value))
        if found:
            raise ValidationError(found)
        return loaded


class Object(Value):
    """An object that a `Document` describes."""

    json_type = "object"

    def __init__(self, document: "Document", **options: Any) -> None:
        super().__init__(**options)
        self.document = document

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> Any:
        loaded, violations = self.document.examine(value)
        if violations:
            raise ValidationError(violations)
        return loaded


def _load(field: Value, value: Any) -> tuple[Any, list[Violation]]:
    """Return what `field` makes of a member of a container, or what is wrong with it."""
    if value is None and not field.allow_none:
        return None, field.wrong_type(value).messages  # type: ignore[return-value]
    try:
        return field.deserialize(value), []
    except ValidationError as error:
        return None, error.messages  # type: ignore[return-value]


def check(field: Value, value: Any, lead: str = "JSON does not validate: ") -> Any:
    """Return what `field` makes of `value`; raises `Invalid` with the shallowest violation."""
    loaded, violations = _load(field, value)
    if violations:
        raise Invalid(f"{lead}{max(violations, key=lambda v: (-len(v.instance), v.instance))}")
    return loaded


class Document(Schema):
    """A closed JSON object: the fields it declares, and no others."""

    error_messages = {  # noqa: RUF012
        "unknown": _UNKNOWN
    }

    class Meta:
        """What marshmallow does with a key that no field declares: it says so."""

        unknown = RAISE

    @classmethod
    @cache
    def at(cls, version: tuple[int, int]) -> Self:
        """Return the document as a microversion knows it."""
        return cls(
            exclude=[
                name
                for name, field in cls._declared_fields.items()
                if isinstance(field, Value)
                and ((field.since and version < field.since) or (field.until and version > field.until))
            ]
        )

    def examine(self, value: Any) -> tuple[Any, list[Violation]]:
        """Return what `value` means, or all that is wrong with it."""
        if not isinstance(value, Mapping):
            return None, _not_of_type(value, "object").messages  # type: ignore[return-value]
        try:
            return self.load(value), []
        except ValidationError as error:
            return None, list(self._violations(value, error.messages))  # type: ignore[arg-type]

    def _violations(self, value: Mapping[str, Any], messages: dict[str, list[Any]]) -> Iterable[Violation]:
        """Yield violations of properties first, then of `required`, then of `additionalProperties`."""
        for key, field in self.fields.items():
            for problem in messages.get(key, ()):
                if problem == _NULL:
                    problem = field.wrong_type(None).messages[0]  # type: ignore[attr-defined]
                if isinstance(problem, Violation):
                    yield problem.under(("properties", key), key)
        required = [key for key, field in self.fields.items() if field.required]
        for key in required:
            if _REQUIRED in messages.get(key, ()):
                yield Violation("required", required, f"{key!r} is a required property", value)
        strangers = sorted(key for key, problems in messages.items() if _UNKNOWN in problems)
        if strangers:
            verb = "was" if len(strangers) == 1 else "were"
            keys = ", ".join(_quote(key) for key in strangers)
            reason = f"Additional properties are not allowed ({keys} {verb} unexpected)"
            yield Violation("additionalProperties", False, reason, value)

    def check(self, value: Any, lead: str = "JSON does not validate: ") -> Any:
        """Return what `value` means; raises `Invalid` with the shallowest violation."""
        return check(Object(self), value, lead)
