"""Imports from a running service, at old and new microversions."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from placement_svc import config
from placement_svc.cli import main
from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from placement_svc.import_export.placement_client import PlacementClient
from tests.conftest import empty
from tests.support.cloud import uuid_of
from tests.support.placement_groups import add_members
from tests.support.sample_cloud import Call, fill
from tests.support.servers import responding
from tests.support.snapshot import snapshot

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def other(new_database: Callable[[], str]) -> Iterator[Engine]:
    """The engine of the database that is imported into."""
    engine = connect(new_database())
    schema.upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def run(other: Engine, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `import` on the other database, which is emptied first."""
    for setting in fields(Settings):
        monkeypatch.delenv(config.variable(setting.name), raising=False)
    empty(other)

    def invoke(*arguments: str) -> Result:
        url = other.url.render_as_string(hide_password=False)
        return CliRunner().invoke(
            main, ["import", *arguments], env={config.variable("database_url"): url, "OS_TOKEN": "admin"}
        )

    return invoke


@pytest.fixture
def source(live: str, call: Call) -> str:
    """The URL of a service that serves the sample cloud."""
    fill(call)
    return live


def test_all_data_of_a_service_is_imported(source: str, run: Run, engine: Engine, other: Engine) -> None:
    imported = run("--from", f"{source}/")
    added = "5 resource providers, 2 consumers, 2 custom traits and 2 custom resource classes"
    assert (imported.exit_code, imported.stdout) == (0, f"Imported {added}\n")
    assert snapshot(other) == snapshot(engine)


def test_placement_groups_are_imported(
    source: str, run: Run, engine: Engine, other: Engine, call: Call
) -> None:
    apart, together = "a0000000-0000-4000-8000-000000000001", "a0000000-0000-4000-8000-000000000002"
    call("PUT", f"/placement_groups/{apart}", {"policy": "anti-affinity", "max_per_domain": 2})
    call("PUT", f"/placement_groups/{together}", {"policy": "affinity", "across": [uuid_of("rack")]})
    add_members(engine, together, [uuid_of("untyped").upper()])
    imported = run("--from", source)
    assert (imported.exit_code, "2 placement groups" in imported.stdout) == (0, True)
    assert snapshot(other) == snapshot(engine)
    assert len(snapshot(other)["placement_group_members"]) == 1


def test_overcommitted_allocations_are_imported_with_a_warning(source: str, run: Run) -> None:
    over_capacity, wrong_units = run("--from", source).stderr.splitlines()
    assert over_capacity.startswith(
        f"Overcommitted: 20 VCPU of resource provider {uuid_of('cn')} are allocated"
    )
    assert wrong_units.startswith(
        f"Overcommitted: an allocation of 3 VCPU from resource provider {uuid_of('numa')} violates"
    )


# The members that a microversion lacks and that the next listed microversion returns.
NOT_RETURNED = {
    "1.0": {"provider_aggregates"},
    "1.1": {"custom resource classes"},
    "1.5": {"names", "traits of providers", "provider_traits"},
    "1.11": {"owners of consumers"},
    "1.13": {"trees"},
    "1.37": {"types of consumers"},
}


def parts(engine: Engine) -> dict[str, Any]:
    """Return a snapshot, divided into parts that different microversions introduced."""
    data = snapshot(engine)
    return {
        "provider_aggregates": [(uuid, aggregate) for uuid, _, aggregate in data["provider_aggregates"]],
        "custom resource classes": [row for row in data["names"] if row[0] == "CUSTOM_EMPTY"],
        "names": [row for row in data["names"] if row[0] != "CUSTOM_EMPTY"],
        "traits of providers": [row[-1] for row in data["providers"]],
        "provider_traits": data["provider_traits"],
        "owners of consumers": [row[:3] for row in data["consumers"]],
        "trees": [row[2:5] for row in data["providers"]],
        "types of consumers": [row[3] for row in data["consumers"]],
        "providers": [row[:2] for row in data["providers"]],
        "inventories": [(uuid, *rest) for uuid, _, *rest in data["inventories"]],
        "allocations": data["allocations"],
    }


@pytest.mark.parametrize("version", NOT_RETURNED)
def test_an_older_service_is_imported_without_what_it_does_not_return(
    source: str,
    run: Run,
    engine: Engine,
    other: Engine,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    call: Call,
) -> None:
    if version < "1.2":
        # A service without custom resource classes has no inventories of them.
        call("DELETE", f"/allocations/{uuid_of('untyped').upper()}")
        call("DELETE", f"/resource_providers/{uuid_of('bare')}/inventories")
        call("DELETE", "/resource_classes/CUSTOM_GPU")
    monkeypatch.setattr("placement_svc.import_export.placement_client.NEWEST", version)
    assert run("--from", source).exit_code == 0
    before, after = parts(engine), parts(other)
    differing = {part for part in before if before[part] != after[part]}
    position = list(NOT_RETURNED).index(version)
    assert differing == set().union(*list(NOT_RETURNED.values())[position:])


def test_microversion_1_38_returns_all_data(
    source: str, run: Run, engine: Engine, other: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placement_svc.import_export.placement_client.NEWEST", "1.38")
    assert run("--from", source).exit_code == 0
    assert snapshot(other) == snapshot(engine)


def request_case(method: str, path: str, body: Any = None) -> Any:
    return pytest.param(method, path, body, id=f"{method} {path.split('/')[1]}")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        request_case("POST", "/resource_providers", {"name": "new"}),
        request_case("PUT", f"/resource_providers/{uuid_of('ss')}", {"name": "renamed"}),
        request_case("DELETE", f"/resource_providers/{uuid_of('ss')}/traits"),
        request_case("DELETE", f"/allocations/{uuid_of('consumer')}"),
        request_case(
            "PUT",
            f"/allocations/{uuid_of('consumer')}",
            {
                "allocations": {uuid_of("ss"): {"resources": {"DISK_GB": 8}}},
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": 1,
                "consumer_type": "INSTANCE",
            },
        ),
    ],
)
def test_a_service_that_changes_during_the_import_is_not_imported(
    source: str,
    run: Run,
    other: Engine,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    method: str,
    path: str,
    body: Any,
) -> None:
    get = PlacementClient.get
    pending = [(method, path, body)]

    def change_then_get(self: PlacementClient, path: str) -> Any:
        if path.startswith("/allocations/") and pending:
            call(*pending.pop())
        return get(self, path)

    monkeypatch.setattr(PlacementClient, "get", change_then_get)
    result = run("--from", source)
    assert result.exit_code == 1
    assert "changed during the import" in result.stderr
    assert snapshot(other)["providers"] == []


def test_a_missing_token_is_an_error(run: Run) -> None:
    refused = run("--from", "http://127.0.0.1:1", "--token", "")
    assert refused.exit_code == 2
    assert "give one by --token or OS_TOKEN" in refused.stderr


def test_a_token_without_permission_is_an_error(source: str, run: Run) -> None:
    refused = run("--from", source, "--token", "nobody")
    assert refused.exit_code == 1
    assert f"Error: GET {source}/resource_providers?uuid={config.NOBODY} returned 403: " in refused.stderr


def test_data_that_cannot_be_imported_is_reported(source: str, run: Run, other: Engine) -> None:
    assert run("--from", source).exit_code == 0
    before = snapshot(other)
    again = run("--from", source)
    assert again.exit_code == 1
    first, *problems = again.stderr.splitlines()
    assert first == f"Error: the data of {source} cannot be imported:"
    assert f"a resource provider with the uuid {uuid_of('ss')} already exists" in problems
    assert snapshot(other) == before


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (404, b"no <such>\nthing", "/ returned 404: no <such> thing"),
        (200, b"<html>", "/ returned a body that is not JSON"),
        (200, b"[" * 100_000, "/ returned a body that is not JSON"),
        (200, b"[]", "does not list its microversions: is it a Placement service?"),
        (200, b'{"versions": []}', "does not list its microversions: is it a Placement service?"),
        (
            200,
            b'{"versions": [{"min_version": "2.0", "max_version": "2.5"}]}',
            "supports microversions from 2.0 on, but this service only up to 1.39",
        ),
    ],
)
def test_a_server_that_is_not_placement_is_an_error(run: Run, status: int, body: bytes, problem: str) -> None:
    with responding(status, body) as (port, _):
        result = run("--from", f"http://127.0.0.1:{port}")
    assert result.exit_code == 1
    assert problem in result.stderr


VERSIONS = {"versions": [{"min_version": "1.0", "max_version": "1.39"}]}
CLASSES = {"traits": [], "resource_classes": [{"name": "CUSTOM_\ud800"}]}


@pytest.mark.parametrize("body", [None, {}, {"traits": 5}, {"traits": [5]}, CLASSES], ids=str)
def test_a_response_without_the_expected_values_is_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    def get(_client: PlacementClient, path: str) -> Any:
        return VERSIONS if path == "/" else body

    monkeypatch.setattr(PlacementClient, "get", get)
    result = run("--from", "http://placement")
    assert result.exit_code == 1
    problem = "returned a response without the expected values: is it a Placement service?"
    assert result.stderr == f"Error: http://placement {problem}\n"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("placement:8778", "begin with http:// or https://"),
        ("ftp://placement", "begin with http:// or https://"),
        ("", "begin with http:// or https://"),
        ("http://placement/?a=b", "not contain ? or #"),
    ],
)
def test_an_invalid_url_is_an_error(run: Run, url: str, reason: str) -> None:
    result = run("--from", url)
    assert result.exit_code == 1
    assert result.stderr == f"Error: {url} is not a service URL: it must {reason}\n"


def test_an_unreachable_service_is_an_error(run: Run) -> None:
    result = run("--from", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: GET http://127.0.0.1:1/ failed: ")
