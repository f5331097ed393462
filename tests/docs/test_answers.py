"""docs/answers.md shows what the requests and commands answer about the demo's cloud."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask import Flask
from sqlalchemy import Engine, text

from placement_svc.cli import main
from placement_svc.db.connections.engine import Database
from placement_svc.demo import cloud
from tests.conftest import empty, served
from tests.support.curl import AS_ADMIN, run

PAGE = (Path(__file__).parents[2] / "docs/answers.md").read_text()
WAIT_SECONDS = 30
BLOCK = re.compile(r"```(sh|json|)\n(.*?)\n```", re.S)


@dataclass(frozen=True)
class Question:
    """A section of the page: requests, the response to the last one, a command and its output."""

    title: str
    requests: tuple[str, ...]
    response: Any
    command: str
    output: str


def questions() -> Iterator[Question]:
    """Yield the sections of the page."""
    for section in PAGE.split("\n## ")[1:]:
        *requests, response, command, output = BLOCK.findall(section)
        assert [kind for kind, _ in (response, command, output)] == ["json", "sh", ""]
        yield Question(
            section.partition("\n")[0],
            tuple(line for _, line in requests),
            json.loads(response[1]),
            command[1],
            output[1],
        )


QUESTIONS = list(questions())


@pytest.fixture(scope="module")
def demo(shared_app: Flask, engine: Engine) -> Iterator[str]:
    """The URL of a service with the cloud of the demo."""
    empty(engine)
    database = shared_app.extensions["database"]
    assert isinstance(database, Database)
    cloud.load(database, cloud.records(cloud.HOSTS))
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM empty_answers"))
    with served(shared_app) as url:
        yield url
    empty(engine)


def contains(actual: Any, shown: Any) -> bool:
    """Return whether a part of a response is shown as it is; members of objects may be left out."""
    if isinstance(shown, dict):
        return isinstance(actual, dict) and all(
            name in actual and contains(actual[name], value) for name, value in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(actual, list) and len(actual) == len(shown) and all(map(contains, actual, shown))
    return bool(actual == shown)


def without_ids_and_times(output: str) -> str:
    """Return an output with the same times and request ids as every other."""
    output = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", output)
    return re.sub(r"req-[0-9a-f-]{36}", "REQUEST ID", output)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.title)
def test_answers_are_those_of_the_demo(demo: str, question: Question) -> None:
    *before, last = question.requests
    for line in before:
        assert run(line, demo)[0] == 200
    end = time.monotonic() + WAIT_SECONDS
    while True:
        status, content = run(last, demo)
        assert status == 200, content
        # A search without candidates is stored after its response.
        if not before or json.loads(content)["empty"] or time.monotonic() > end:
            break
        time.sleep(0.1)
    assert contains(json.loads(content), question.response), content
    program, *arguments = shlex.split(question.command)
    assert program == "placement-svc"
    result = CliRunner().invoke(main, arguments, env={"PLACEMENT_URL": demo})
    assert result.exit_code < 2, result.stderr
    printed = without_ids_and_times(result.stdout.rstrip("\n"))
    shown = without_ids_and_times(question.output)
    if shown.endswith("\n..."):
        shown = shown.removesuffix("...")
        printed = printed[: len(shown)]
    assert printed == shown


def test_page_answers_nine_questions_and_defines_the_options() -> None:
    assert len(QUESTIONS) == 9
    assert AS_ADMIN in PAGE
