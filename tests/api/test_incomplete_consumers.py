"""Consumers of old microversions, which name no project and user (`docs/spec/allocations.md 1`)."""

from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import Client

from placement_svc.config import Settings
from tests.conftest import Api, application
from tests.support.cloud import uuid_of

HOST, CONSUMER = uuid_of("host"), uuid_of("consumer")


@pytest.fixture(scope="module")
def configured(database_url: str) -> Iterator[Client]:
    """A client of an application that configures the project and the user of incomplete consumers."""
    settings = Settings(
        database_url=database_url,
        incomplete_consumer_project_id="old-project",
        incomplete_consumer_user_id="old-user",
    )
    with application(settings) as app:
        yield app.test_client()


@pytest.fixture
def host(api: Api) -> None:
    """A host with a few CPUs."""
    api("POST", "/resource_providers", {"name": "host", "uuid": HOST})
    inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
    assert api("PUT", f"/resource_providers/{HOST}/inventories", inventories).status_code == 200


def claim(client: Client, version: str, **consumer: Any) -> None:
    body = {"allocations": [{"resource_provider": {"uuid": HOST}, "resources": {"VCPU": 1}}], **consumer}
    headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": f"placement {version}"}
    response = client.put(f"/allocations/{CONSUMER}", json=body, headers=headers)
    assert response.status_code == 204, response.text


def owner(api: Api) -> tuple[str, str]:
    shown: Any = api("GET", f"/allocations/{CONSUMER}").json
    return shown["project_id"], shown["user_id"]


@pytest.mark.usefixtures("host")
def test_incomplete_consumer_has_the_configured_project_and_user(configured: Client, api: Api) -> None:
    claim(configured, "1.0")
    assert owner(api) == ("old-project", "old-user")
    used: Any = api("GET", "/usages?project_id=old-project&user_id=old-user").json
    assert used["usages"]["unknown"]["VCPU"] == 1


@pytest.mark.usefixtures("host")
def test_named_project_and_user_take_precedence(configured: Client, api: Api) -> None:
    claim(configured, "1.8", project_id="project", user_id="user")
    assert owner(api) == ("project", "user")


@pytest.mark.usefixtures("host")
def test_old_client_moves_a_consumer_to_the_configured_project(configured: Client, api: Api) -> None:
    claim(configured, "1.8", project_id="project", user_id="user")
    claim(configured, "1.7")
    assert owner(api) == ("old-project", "old-user")
