"""Run each YAML file of `gabbits/` in-process, its requests in order."""

import unittest
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from gabbi.handlers import RESPONSE_HANDLERS
from gabbi.suitemaker import test_suite_from_dict as suite_from_dict
from gabbi.utils import load_yaml

from tests.conftest import application
from tests.support.gabbi_candidates import CandidatesHandler

GABBITS = Path(__file__).parents[2] / "gabbits"

SETTINGS = {"policy-legacy": {"policy_profile": "legacy"}}
"""The settings that a file needs, by its name, where they differ from the defaults."""


@pytest.fixture
def served(file: Path, app: Flask) -> Iterator[Flask]:
    """The application with the settings that a file needs, on an empty database."""
    if file.stem not in SETTINGS:
        yield app
        return
    with application(replace(app.extensions["settings"], **SETTINGS[file.stem])) as served:
        yield served


LONG = {"candidates-wide-tree-vf6"}
"""Files whose responses take long to compute and to check."""

FILES = [
    pytest.param(file, id=file.stem, marks=[pytest.mark.long] if file.stem in LONG else [])
    for file in sorted(GABBITS.glob("*.yaml"))
]


# One test per file: its requests depend on each other, so one worker has to run all of them.
@pytest.mark.parametrize("file", FILES)
def test_gabbits(file: Path, served: Flask) -> None:
    suite = suite_from_dict(
        unittest.TestLoader(),
        file.stem,
        load_yaml(yaml_file=file),
        str(GABBITS),
        host="localhost",
        port=None,
        fixture_module=None,
        intercept=lambda: served,
        handlers=[handler() for handler in (*RESPONSE_HANDLERS, CandidatesHandler)],
    )
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun
    failures = [f"{gabbit.test_data['name']}: {trace}" for gabbit, trace in result.errors + result.failures]
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)
