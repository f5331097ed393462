"""The files that name what the metrics watch: YAML mappings of names to texts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml  # type: ignore[import-untyped]

from placement_svc.domain.errors import Invalid, SetupError
from placement_svc.domain.limits import MAX_NAME_LENGTH
from placement_svc.domain.wording import short_reason
from placement_svc.http.watched_file import read_regular_file

MAX_NAMES = 100
"""The most names that a file may have: each is computed once a minute, and is the label of a series."""

T = TypeVar("T")


@dataclass(frozen=True)
class WatchedNames:
    """A kind of file: `kind` as in "request", `value` as in "a uuid", and an example of a line."""

    kind: str
    value: str
    example: str

    def read(self, path: Path, parse: Callable[[str], T]) -> dict[str, T]:
        """Return what `parse` returns for the text of each name; raise `SetupError` if a part is not valid.

        `parse` raises `Invalid` for a text that is not valid.
        """
        try:
            content = yaml.safe_load(read_regular_file(path))
        except OSError as error:
            raise self._error(path, f"cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, ValueError) as error:
            raise self._error(path, f"is not YAML: {' '.join(str(error).split())}") from error
        if not isinstance(content, dict):
            raise self._error(path, f"must map names to {self.kind}s, as in {self.example}")
        if len(content) > MAX_NAMES:
            raise self._error(path, f"has {len(content)} {self.kind}s, more than {MAX_NAMES}")
        return {
            self._name(path, name): self._value(path, name, text, parse) for name, text in content.items()
        }

    def _name(self, path: Path, name: object) -> str:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise self._error(
                path,
                f"has the name {name!r}: it must be a text of 1 to {MAX_NAME_LENGTH} printable characters",
            )
        return name

    def _value(self, path: Path, name: object, text: object, parse: Callable[[str], T]) -> T:
        if not isinstance(text, str):
            raise self._error(path, f"must have {self.value} for {name}, not {text!r}")
        try:
            return parse(text)
        except Invalid as error:
            raise self._error(
                path, f"has an invalid {self.kind} for {name}: {short_reason(str(error))}"
            ) from error

    def _error(self, path: Path, problem: str) -> SetupError:
        return SetupError(f"The file of watched {self.kind}s {path} {problem}")
