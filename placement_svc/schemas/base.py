"""Marshmallow schemas and containers that word errors like a JSON Schema validator (`docs/spec/http.md 7`).

Their members are fields, such as those of `scalars.py`. A container puts its place in front of the paths of
its member's violation. It looks at no member if it is wrong itself, and at no further member after
`MAX_VIOLATIONS` wrong ones, so that the cost of an invalid body is bounded.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar, Self

import marshmallow
from marshmallow import ValidationError

from placement_svc.domain.errors import Invalid
from placement_svc.domain.version_header import EXTENSIONS_HEADER, VERSION_HEADER
from placement_svc.domain.wording import list_sorted_names
from placement_svc.schemas.scalars import HINTS, Value, Version, compile_pattern
from placement_svc.schemas.violations import Violation, WorstViolation, quote, violation_error

BODY_ERROR_PREFIX = "JSON does not validate: "
"""The beginning of an error about a body."""

MAX_VIOLATIONS = 20
"""The number of wrong members of one container after which it does not look for further ones."""

MAX_MEMBERS = 100_000
"""The most members that an array, or an object with freely chosen keys, can have in a body."""

MAX_COMPARED = 1000
"""The most elements of an array with a wrong element that are compared with each other for `uniqueItems`."""


def _check_size(
    value: Sequence[Any] | Mapping[str, Any], minimum: int, noun: str, maximum: int = MAX_MEMBERS
) -> None:
    """Raise the error of a container with fewer members than `minimum` or more than `maximum`."""
    if len(value) < minimum:
        raise violation_error(f"min{noun}", minimum, f"{quote(value)} should be non-empty", value)
    if len(value) > maximum:
        reason = "is too long" if noun == "Items" else "has too many properties"
        raise violation_error(f"max{noun}", maximum, f"{quote(value)} {reason}", value)


class Array(Value):
    """A list whose items share one field."""

    json_type = "array"

    def __init__(
        self,
        item: Value,
        *,
        min_items: int = 0,
        max_items: int = MAX_MEMBERS,
        unique: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.item = item
        self.min_items = min_items
        self.max_items = max_items
        self.unique = unique

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.wrong_type(value)
        _check_size(value, self.min_items, "Items", self.max_items)
        loaded, worst = [], WorstViolation()
        # Backwards: of several wrong elements, the last one is reported.
        for index in range(len(value) - 1, -1, -1):
            item, violation = validate(self.item, value[index])
            if violation is None:
                loaded.append(item)
                continue
            worst.add(violation.under(("items",), index))
            if not violation.instance or worst.count == MAX_VIOLATIONS:
                break
        if self.unique and not (worst.violation and len(value) > MAX_COMPARED) and _has_equal(value):
            raise violation_error("uniqueItems", True, f"{quote(value)} has non-unique elements", value)
        if worst.violation:
            raise ValidationError([worst.violation])
        loaded.reverse()
        return loaded


def _has_equal(items: Iterable[Any]) -> bool:
    """Return whether two of `items` are equal; other values than strings are compared as quoted."""
    seen = set[Any]()
    for item in items:
        key = item if isinstance(item, str) else (quote(item),)
        if key in seen:
            return True
        seen.add(key)
    return False


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
        self._search = compile_pattern(pattern).search
        self.value = value
        self.min_members = min_members
        self.closed = closed

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong_type(value)
        _check_size(value, self.min_members, "Properties")
        if self.closed and (unmatched_keys := [key for key in value if not self._search(key)]):
            keys = list_sorted_names(unmatched_keys, quote)
            verb = "does" if len(unmatched_keys) == 1 else "do"
            reason = f"{keys} {verb} not match any of the regexes: {self.pattern!r}"
            hint = HINTS.get(self.pattern, "")
            raise violation_error("additionalProperties", False, reason, value, hint=hint)
        loaded, worst = {}, WorstViolation()
        for key, member in value.items():
            if self._search(key):
                loaded[key], violation = validate(self.value, member)
                schema: tuple[str, ...] = ("patternProperties", self.pattern)
            else:
                loaded[key], violation = self.load_unmatched(member)
                schema = ("additionalProperties",)
            if violation:
                worst.add(violation.under(schema, key))
                if worst.count == MAX_VIOLATIONS:
                    break
        if worst.violation:
            raise ValidationError([worst.violation])
        return loaded

    def load_unmatched(self, member: Any) -> "tuple[Any, Violation | None]":
        """Load a member whose key does not match; return it and its violation, None if it has none."""
        return member, None


class Object(Value):
    """An object that a `Schema` describes."""

    json_type = "object"

    def __init__(self, schema: "Schema", **options: Any) -> None:
        super().__init__(**options)
        self.schema = schema

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, Mapping):
            raise self.wrong_type(value)
        self.schema.check_keys(value)
        loaded, worst = {}, WorstViolation()
        for key, field in self.schema.fields.items():
            if key in value:
                loaded[key], violation = validate(field, value[key])  # type: ignore[arg-type]
                if violation:
                    worst.add(violation.under(("properties", key), key))
        if worst.violation:
            raise ValidationError([worst.violation])
        return loaded


class Schema(marshmallow.Schema):
    """A closed JSON object: it has the declared fields and no others."""

    extension_keys: ClassVar[frozenset[str]] = frozenset()
    """The keys that only a request which may use extensions has here."""

    @classmethod
    @cache
    def at(cls, version: Version) -> Self:
        """Return the schema with the fields of a microversion."""
        return cls(
            exclude=[
                name
                for name, field in cls._declared_fields.items()
                if isinstance(field, Value) and field.since and version < field.since
            ]
        )

    @cached_property
    def _required(self) -> list[str]:
        return [key for key, field in self.fields.items() if field.required]

    def check_keys(self, value: Mapping[str, Any]) -> None:
        """Raise the error of an object that lacks a required key, or else of one with unknown keys."""
        for key in self._required:
            if key not in value:
                raise violation_error("required", self._required, f"{key!r} is a required property", value)
        unknown_keys = [key for key in value if key not in self.fields]
        if unknown_keys:
            verb = "was" if len(unknown_keys) == 1 else "were"
            keys = list_sorted_names(unknown_keys, quote)
            reason = f"Additional properties are not allowed ({keys} {verb} unexpected)"
            hint = version_hint(unknown_keys, self.introduced)
            hint = hint or extension_hint(unknown_keys, self.extension_keys)
            raise violation_error("additionalProperties", False, reason, value, hint=hint)

    @classmethod
    def introduced(cls, key: str) -> Version | None:
        """Return the microversion that introduced a key; None for a key of 1.0 and for an unknown key."""
        field = cls._declared_fields.get(key)
        return (field.since or None) if isinstance(field, Value) else None

    def check(self, value: Any, prefix: str = BODY_ERROR_PREFIX) -> Any:
        """Return `value` as this schema loads it; raise `Invalid` with the shallowest violation."""
        return check(Object(self), value, prefix)


def version_hint(keys: Iterable[str], introduced: Callable[[str], Version | None]) -> str:
    """Return a sentence that names the microversion which has those of `keys` that a later one introduced.

    The sentence is empty if no microversion has any of them.
    """
    versions = {key: version for key in keys if (version := introduced(key))}
    if not versions:
        return ""
    major, minor = max(versions.values())
    names = list_sorted_names(versions, quote)
    verb = "needs" if len(versions) == 1 else "need"
    return f"{names} {verb} microversion {major}.{minor} or later in the header {VERSION_HEADER}."


def extension_hint(keys: Iterable[str], extension_keys: Collection[str]) -> str:
    """Return a sentence with the header that those of `keys` need which are extensions; empty if none is."""
    extensions = [key for key in keys if key in extension_keys]
    if not extensions:
        return ""
    names = list_sorted_names(extensions, quote)
    verb = "is an extension" if len(extensions) == 1 else "are extensions"
    return f"{names} {verb}: send the header {EXTENSIONS_HEADER}."


def validate(field: Value, value: Any) -> tuple[Any, Violation | None]:
    """Return `value` as `field` loads it and None, or None and the violation to report."""
    if value is None:
        return None, None if field.allow_none else field.wrong_type(value).messages[0]  # type: ignore[return-value]
    try:
        return field._deserialize(value, None, None), None
    except ValidationError as error:
        return None, error.messages[0]  # type: ignore[return-value]


def check(field: Value, value: Any, prefix: str = BODY_ERROR_PREFIX) -> Any:
    """Return `value` as `field` loads it.

    Raise `Invalid` with the shallowest violation; of several at one depth, the last by its path.
    """
    loaded, violation = validate(field, value)
    if violation:
        raise Invalid(f"{prefix}{violation}")
    return loaded
