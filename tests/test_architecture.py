import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "placement_svc"

MAY_IMPORT = {
    "domain": set(),
    "db": {"domain"},
    "schemas": {"domain"},
    "http": {"schemas", "domain"},
    "api": {"config", "http", "schemas", "domain", "db"},
    "console": {"api", "config", "http", "schemas", "domain", "db"},
    "openapi": {"http", "schemas", "domain"},
    "observability": {"http", "domain", "db"},
    "client": {"domain"},
    "demo": {"client", "domain", "http", "db", "provisioning", "standard_output"},
    "import_export": {
        *("client", "config", "http", "schemas", "domain", "db", "provisioning", "standard_output"),
    },
    "provisioning": {"config", "domain", "db"},
    "server": {"config", "configuration_files", "http", "domain", "db", "observability", "provisioning"},
    "commands": {
        *("app", "audit_report", "client", "config", "configuration_files", "demo"),
        *("http", "domain", "db", "import_export", "provisioning", "server", "standard_output"),
    },
}

ONLY_IN = {
    "flask": {"http", "api", "console", "openapi", "observability", "server"},
    "werkzeug": {"http", "api", "console", "openapi"},
    "sqlalchemy": {"db", "observability", "import_export", "provisioning", "commands"},
    "alembic": {"db"},
    "marshmallow": {"schemas", "openapi"},
    "apispec": {"openapi"},
    "oslo_policy": {"http"},
    "keystonemiddleware": {"http"},
    "flask_swagger_ui": {"http"},
    "itsdangerous": {"console"},
    "jinja2": {"console"},
}


def imports(layer: str) -> Iterator[tuple[Path, str]]:
    """Yield each file of a layer with the qualified name of each import."""
    for path in sorted((PACKAGE / layer).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path} has a relative import"
                yield from ((path, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layer_imports_only_layers_below(layer: str) -> None:
    allowed = tuple(f"placement_svc.{name}." for name in MAY_IMPORT[layer] | {layer})
    faults = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, name in imports(layer)
        if name.startswith("placement_svc.") and not f"{name}.".startswith(allowed)
    ]
    assert faults == []


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layer_keeps_to_its_libraries(layer: str) -> None:
    faults = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, name in imports(layer)
        if layer not in ONLY_IN.get(name.split(".")[0], {layer})
    ]
    assert faults == []


def test_every_directory_of_the_package_is_a_layer() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(MAY_IMPORT)


def test_architecture_names_files_that_exist() -> None:
    named = re.findall(
        r"`((?:placement_svc|tests|migrations)/[\w/.]*)`", (ROOT / "docs/architecture.md").read_text()
    )
    assert [name for name in named if not (ROOT / name).exists()] == []
