import json
import re
import shlex
import urllib.request
from dataclasses import fields
from pathlib import Path
from urllib.error import HTTPError

import pytest

from placement_svc.config import Settings, variable

README = (Path(__file__).parents[1] / "README.md").read_text()

SET_UP_LINES = [
    "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/placement-svc demo",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest",
]

Answers = list[tuple[int, str]]


@pytest.fixture
def tour(live: str) -> Answers:
    """The answers to the curl lines of the tour, in their order."""
    lines = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
    options = next(line for line in lines if line.startswith("as_admin=("))[len("as_admin=(") : -1]
    calls = [line for line in lines if line.startswith("curl ")]
    return [run(line.replace('"${as_admin[@]}"', options).replace("$api", live)) for line in calls]


def run(line: str) -> tuple[int, str]:
    """Do what a curl command line says; return the answer's status and body."""
    _, *words = shlex.split(line)
    method, headers, data, url = None, {}, None, ""
    while words:
        word = words.pop(0)
        match word:
            case "-X":
                method = words.pop(0)
            case "-H":
                name, value = words.pop(0).split(": ", 1)
                headers[name] = value
            case "-d":
                data = words.pop(0).encode()
            case "-w":
                words.pop(0)
            case _:
                assert not url
                url = word
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_tour_answers_as_told(tour: Answers) -> None:
    assert [status for status, _ in tour] == [200] * 7 + [204, 200, 200, 409] + [204] * 4


def test_tour_shows_the_candidate_it_claims(tour: Answers) -> None:
    candidates = json.loads(tour[6][1])["allocation_requests"]
    shown = re.findall(r"```json\n(.*?)```", README, re.S)
    assert len(candidates) == 2
    assert candidates[0] == json.loads(shown[0])


def test_tour_sees_the_usage_of_its_claim(tour: Answers) -> None:
    of_provider, of_project = (json.loads(body)["usages"] for _, body in tour[8:10])
    assert of_provider == {"VCPU": 2, "MEMORY_MB": 4096}
    assert of_project == {"INSTANCE": {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20, "consumer_count": 1}}


@pytest.mark.parametrize("line", SET_UP_LINES)
def test_set_up_lines_stand_alone(line: str) -> None:
    assert f"```sh\n{line}\n```" in README


def test_settings_table_lists_every_setting_and_no_other() -> None:
    listed = re.findall(r"^\| `(PLACEMENT_\w+)` \|", README, re.M)
    assert listed == [variable(setting.name) for setting in fields(Settings)]
