"""The calls of a page of the documentation, and the responses that it shows."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.support.curl import CurlResponse, run

EXAMPLE = re.compile(r"```sh\n(.*?)```(?:\n\n```json\n(.*?)```)?", re.S)
"""Calls, and the expected part of the last response."""


class DocumentedCalls(NamedTuple):
    """The responses of the calls of one example, and the body that the page shows for the last one."""

    responses: list[CurlResponse]
    documented: str


def send_examples(page: str, url: str) -> list[DocumentedCalls]:
    """Send the calls of a page in order."""
    return [
        DocumentedCalls(
            [run(line, url) for line in calls.splitlines() if line.startswith("curl ")], documented
        )
        for calls, documented in EXAMPLE.findall(page)
    ]


def check_examples(file: Path, url: str) -> None:
    """Send the calls of a page, and compare the responses with the parts of them that it shows."""
    examples = send_examples(file.read_text(), url)
    assert examples
    for responses, documented in examples:
        for status, content in responses[: -1 if documented else None]:
            assert status < 300, content
        if documented:
            status, content = responses[-1]
            expected = json.loads(_without_request_id(documented))
            body = json.loads(_without_request_id(content))
            assert {member: body.get(member) for member in expected} == expected
            assert (status < 300) == ("errors" not in expected)


def _without_request_id(text: str) -> str:
    return re.sub('"req-[0-9a-f-]+"', '"req-"', text)
