"""Imports from a running service: what it has comes over, whatever microversion it speaks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from placement_svc import config
from placement_svc.cli import main
from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.engine import connect
from placement_svc.import_export.placement_client import Source
from tests.conftest import empty
from tests.support.cloud import uuid_of
from tests.support.sample_cloud import Call, fill
from tests.support.snapshot import snapshot

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def other(new_database: Callable[[], str]) -> Iterator[Engine]:
    """An engine of another database than the source's."""
    engine = connect(new_database())
    schema.upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def run(other: Engine, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that imports into the other database, which is empty at first."""
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
    """The URL of a service that has something of everything."""
    fill(call)
    return live


def test_all_that_a_service_has_comes_over(source: str, run: Run, engine: Engine, other: Engine) -> None:
    imported = run("--from", f"{source}/")
    assert (imported.exit_code, imported.stdout) == (0, "Imported 5 resource providers and 2 consumers\n")
    assert snapshot(other) == snapshot(engine)


def test_what_is_overcommitted_comes_over_and_is_told(source: str, run: Run) -> None:
    over, off_units = run("--from", source).stderr.splitlines()
    assert over.startswith(f"Overcommitted: of VCPU of resource provider {uuid_of('cn')} 20 are allocated")
    assert off_units.startswith(f"Overcommitted: 3 of VCPU of resource provider {uuid_of('numa')} violates")


# What each of these microversions does not tell, and the next one that is listed does.
UNKNOWN = {
    "1.0": {"provider_aggregates"},
    "1.1": {"custom resource classes"},
    "1.5": {"names", "traits of providers", "provider_traits"},
    "1.11": {"owners of consumers"},
    "1.13": {"trees"},
    "1.37": {"types of consumers"},
}


def told(engine: Engine) -> dict[str, Any]:
    """Return a snapshot taken apart into what came in with different microversions."""
    found = snapshot(engine)
    return {
        "provider_aggregates": [(uuid, aggregate) for uuid, _, aggregate in found["provider_aggregates"]],
        "custom resource classes": [row for row in found["names"] if row[0] == "CUSTOM_EMPTY"],
        "names": [row for row in found["names"] if row[0] != "CUSTOM_EMPTY"],
        "traits of providers": [row[-1] for row in found["providers"]],
        "provider_traits": found["provider_traits"],
        "owners of consumers": [row[:3] for row in found["consumers"]],
        "trees": [row[2:5] for row in found["providers"]],
        "types of consumers": [row[3] for row in found["consumers"]],
        "providers": [row[:2] for row in found["providers"]],
        "inventories": [(uuid, *rest) for uuid, _, *rest in found["inventories"]],
        "allocations": found["allocations"],
    }


@pytest.mark.parametrize("version", UNKNOWN)
def test_older_service_tells_what_it_knows(
    source: str,
    run: Run,
    engine: Engine,
    other: Engine,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    call: Call,
) -> None:
    if version < "1.2":
        # A service that knows no custom classes has no inventories of any.
        call("DELETE", f"/allocations/{uuid_of('untyped').upper()}")
        call("DELETE", f"/resource_providers/{uuid_of('bare')}/inventories")
        call("DELETE", "/resource_classes/CUSTOM_GPU")
    monkeypatch.setattr("placement_svc.import_export.placement_client.NEWEST", version)
    assert run("--from", source).exit_code == 0
    before, after = told(engine), told(other)
    differing = {what for what in before if before[what] != after[what]}
    position = list(UNKNOWN).index(version)
    assert differing == set().union(*list(UNKNOWN.values())[position:])


def test_newest_but_one_tells_all(
    source: str, run: Run, engine: Engine, other: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placement_svc.import_export.placement_client.NEWEST", "1.38")
    assert run("--from", source).exit_code == 0
    assert snapshot(other) == snapshot(engine)


def changes(method: str, path: str, body: Any = None) -> Any:
    return pytest.param(method, path, body, id=f"{method} {path.split('/')[1]}")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        changes("POST", "/resource_providers", {"name": "new"}),
        changes("PUT", f"/resource_providers/{uuid_of('ss')}", {"name": "renamed"}),
        changes("DELETE", f"/resource_providers/{uuid_of('ss')}/traits"),
        changes("DELETE", f"/allocations/{uuid_of('consumer')}"),
        changes(
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
def test_service_that_changes_meanwhile_is_not_imported(
    source: str,
    run: Run,
    other: Engine,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    method: str,
    path: str,
    body: Any,
) -> None:
    ask = Source._ask
    pending = [(method, path, body)]

    def ask_late(self: Source, path: str) -> Any:
        if path.startswith("/allocations/") and pending:
            call(*pending.pop())
        return ask(self, path)

    monkeypatch.setattr(Source, "_ask", ask_late)
    result = run("--from", source)
    assert result.exit_code == 1
    assert "has changed while it was read" in result.stderr
    assert snapshot(other)["providers"] == []


def test_token_is_wanted(run: Run) -> None:
    refused = run("--from", "http://127.0.0.1:1", "--token", "")
    assert refused.exit_code == 2
    assert "give one by --token or OS_TOKEN" in refused.stderr


def test_token_without_rights_is_told(source: str, run: Run) -> None:
    refused = run("--from", source, "--token", "nobody")
    assert refused.exit_code == 1
    assert f"Error: GET {source}/traits?name=startswith:CUSTOM_ answers 403: " in refused.stderr


def test_what_cannot_be_imported_is_told(source: str, run: Run, other: Engine) -> None:
    assert run("--from", source).exit_code == 0
    before = snapshot(other)
    again = run("--from", source)
    assert again.exit_code == 1
    first, *problems = again.stderr.splitlines()
    assert first == f"Error: {source} has what cannot be imported:"
    assert f"there is a resource provider with the uuid {uuid_of('ss')} already" in problems
    assert snapshot(other) == before


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Give the URL of something that always answers the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (404, b"no <such>\nthing", "/ answers 404: no <such> thing"),
        (200, b"<html>", "/ answers with something that is not JSON"),
        (200, b"[]", "does not tell its microversions: is it a Placement service?"),
        (200, b'{"versions": []}', "does not tell its microversions: is it a Placement service?"),
        (
            200,
            b'{"versions": [{"min_version": "2.0", "max_version": "2.5"}]}',
            "only speaks microversions from 2.0, this service up to 1.39",
        ),
    ],
)
def test_what_is_no_placement_service_is_told(run: Run, status: int, body: bytes, problem: str) -> None:
    with answering(status, body) as url:
        result = run("--from", url)
    assert result.exit_code == 1
    assert problem in result.stderr


@pytest.mark.parametrize("url", ["placement:8778", "ftp://placement", ""])
def test_what_is_no_url_of_a_service_is_told(run: Run, url: str) -> None:
    result = run("--from", url)
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: {url} is not the URL of a service, which begins with http:// or https://\n"
    )


def test_service_that_is_not_there_is_told(run: Run) -> None:
    result = run("--from", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: GET http://127.0.0.1:1/ has no answer: ")
