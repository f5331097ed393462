"""The examples, tables and history in docs/api.md agree with the service."""

import json
import re
from pathlib import Path

from flask import Flask

from docs.history import updated
from placement_svc.domain import errors
from tests.support.curl import AS_ADMIN, CurlResponse, run

PAGE = (Path(__file__).parents[2] / "docs/api.md").read_text()

EXAMPLE = re.compile(r"```sh\n(.*?)```(?:\n\n```json\n(.*?)```)?", re.S)
"""Calls, and the expected part of the last response."""


def examples(url: str) -> list[tuple[list[CurlResponse], str]]:
    """Execute the examples in order; return the responses and the documented body of each example."""
    return [
        ([run(line, url) for line in calls.splitlines() if line.startswith("curl ")], documented)
        for calls, documented in EXAMPLE.findall(PAGE)
    ]


def without_request_id(text: str) -> str:
    return re.sub('"req-[0-9a-f-]+"', '"req-"', text)


def test_examples_have_the_documented_responses(live: str) -> None:
    for responses, documented in examples(live):
        for status, content in responses[: -1 if documented else None]:
            assert status < 300, content
        if documented:
            status, content = responses[-1]
            expected = json.loads(without_request_id(documented))
            body = json.loads(without_request_id(content))
            assert {member: body.get(member) for member in expected} == expected
            assert (status < 300) == ("errors" not in expected)


def test_page_defines_the_options_of_the_examples() -> None:
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


def test_history_equals_that_of_the_code() -> None:
    assert updated(PAGE) == PAGE, "update it: python -m docs.history"
