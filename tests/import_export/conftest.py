"""Fixtures: the sample cloud, and a function that runs `placement-svc` on this worker's database."""

from collections.abc import Callable
from dataclasses import fields

import pytest
from click.testing import CliRunner, Result

from placement_svc import config
from placement_svc.cli import main
from placement_svc.config import Settings
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
def cloud(call: Call) -> None:
    """The sample cloud, in the database."""
    fill(call)
