"""docs/api.md says what is so: its examples, its tables and its history."""

import json
import re
from pathlib import Path

from flask import Flask

from docs.history import renewed
from placement_svc.domain import errors
from tests.support.curl import AS_ADMIN, Answer, run

PAGE = (Path(__file__).parents[2] / "docs/api.md").read_text()

EXAMPLE = re.compile(r"```sh\n(.*?)```(?:\n\n```json\n(.*?)```)?", re.S)
"""Calls, and what is shown of the last one's answer."""


def examples(url: str) -> list[tuple[list[Answer], str]]:
    """Do all that the page says, in its order; return the answers of each example, and what is shown."""
    return [
        ([run(line, url) for line in calls.splitlines() if line.startswith("curl ")], shown)
        for calls, shown in EXAMPLE.findall(PAGE)
    ]


def without_request_id(text: str) -> str:
    return re.sub('"req-[0-9a-f-]+"', '"req-"', text)


def test_examples_answer_as_shown(live: str) -> None:
    for answers, shown in examples(live):
        for status, content in answers[: -1 if shown else None]:
            assert status < 300, content
        if shown:
            status, content = answers[-1]
            expected = json.loads(without_request_id(shown))
            answer = json.loads(without_request_id(content))
            assert {member: answer.get(member) for member in expected} == expected
            assert (status < 300) == ("errors" not in expected)


def test_examples_say_who_calls() -> None:
    assert AS_ADMIN in PAGE


def test_every_endpoint_is_listed(shared_app: Flask) -> None:
    listed = re.findall(r"^\| `([A-Z]+ /\S*)` \|", PAGE, re.M)
    served = {
        f"{method} {rule.rule.replace('<', '{').replace('>', '}')}"
        for rule in shared_app.url_map.iter_rules()
        for method in rule.methods or ()
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == served


def test_every_error_code_is_listed() -> None:
    listed = re.findall(r"^\| `(placement\.\S+)` \|", PAGE, re.M)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.code for kind in kinds if issubclass(kind, errors.PlacementError)}
    assert sorted(listed) == sorted(codes)


def test_history_is_that_of_the_code() -> None:
    assert renewed(PAGE) == PAGE, "renew it: python -m docs.history"
