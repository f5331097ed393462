"""Fixtures: the sample cloud, and a function that runs `placement-svc` on this worker's database."""

from collections.abc import Callable
from dataclasses import fields

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from placement_svc import config
from placement_svc.cli import main
from placement_svc.config import Settings
from tests.support.cloud import uuid_of
from tests.support.placement_groups import add_members
from tests.support.sample_cloud import Call, fill


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """A function that runs `placement-svc` on this worker's database."""
    for setting in fields(Settings):
        monkeypatch.delenv(config.variable(setting.name), raising=False)

    def invoke(*arguments: str, input: bytes | None = None) -> Result:
        return CliRunner().invoke(
            main, arguments, input=input, env={config.variable("database_url"): database_url}
        )

    return invoke


@pytest.fixture
def cloud(call: Call, engine: Engine) -> None:
    """The sample cloud and placement groups, in the database."""
    fill(call)
    group = {"policy": "soft-anti-affinity", "max_per_domain": 2, "across": [uuid_of("B"), uuid_of("A")]}
    call("PUT", f"/placement_groups/{uuid_of('group')}", group)
    call("PUT", f"/placement_groups/{uuid_of('empty')}", {"policy": "affinity"})
    add_members(engine, uuid_of("group"), [uuid_of("untyped").upper()])
