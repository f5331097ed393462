"""Fields whose value has one of several JSON types."""

from typing import Any, ClassVar

from marshmallow import ValidationError

from placement_svc.schemas.base import Array
from placement_svc.schemas.scalars import String, Value
from placement_svc.schemas.violations import type_error


class StringOrArray(Value):
    """A string or a list, each with rules of its own."""

    json_type: ClassVar[str] = "string"

    def __init__(self, string: String, array: Array, **options: Any) -> None:
        super().__init__(**options)
        self.alternatives = (string, array)

    def wrong_type(self, value: Any) -> ValidationError:
        """Return the error of a value that is neither a string nor a list."""
        return type_error(value, *(each.json_type for each in self.alternatives))

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> str | list[Any]:
        string, array = self.alternatives
        if isinstance(value, str):
            return string._deserialize(value, attr, data, **kwargs)
        if isinstance(value, list):
            return array._deserialize(value, attr, data, **kwargs)
        raise self.wrong_type(value)
