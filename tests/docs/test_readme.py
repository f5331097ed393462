"""The README: its commands run, its settings are those of the code, and its links work on an index page."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from placement_svc.config import Settings, default_text, variable
from placement_svc.demo import cloud
from tests.support.curl import AS_ADMIN, CurlResponse, run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

SET_UP_LINES = [
    "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/placement-svc demo",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest",
]


@pytest.fixture(params=["empty", "demo"])
def tour(live: str, request: pytest.FixtureRequest) -> list[CurlResponse]:
    """The responses to the curl lines of the tour, in their order: of an empty service, and of the demo."""
    if request.param == "demo":
        cloud.load(request.getfixturevalue("database"), cloud.records(cloud.HOSTS))
    return [run(line, live) for line in README.splitlines() if line.startswith("curl ")]


def test_tour_sends_the_headers_of_an_administrator() -> None:
    assert AS_ADMIN in README


def test_tour_requests_return_the_expected_statuses(tour: list[CurlResponse]) -> None:
    assert [status for status, _ in tour] == [200] * 7 + [204, 200, 200, 409] + [204] * 4


def test_tour_shows_the_candidate_it_claims(tour: list[CurlResponse]) -> None:
    candidates = json.loads(tour[6][1])["allocation_requests"]
    shown = re.findall(r"```json\n(.*?)```", README, re.S)
    assert len(candidates) == 2
    assert candidates[0] == json.loads(shown[0])


def test_tour_sees_the_usage_of_its_claim(tour: list[CurlResponse]) -> None:
    of_provider, of_project = (json.loads(body)["usages"] for _, body in tour[8:10])
    assert of_provider == {"VCPU": 2, "MEMORY_MB": 4096}
    assert of_project == {"INSTANCE": {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20, "consumer_count": 1}}


@pytest.mark.parametrize("line", SET_UP_LINES)
def test_set_up_lines_stand_alone(line: str) -> None:
    assert f"```sh\n{line}\n```" in README


def test_settings_table_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(PLACEMENT_\w+)` \| (.*) \| (.*) \|$", README, re.M)
    documented = [(name, default.replace("`", ""), about.replace("`", "")) for name, default, about in rows]
    assert documented == [
        (variable(setting.name), default_text(setting), setting.metadata["about"])
        for setting in fields(Settings)
    ]


def test_links_do_not_depend_on_where_the_readme_is_shown() -> None:
    targets = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]*)\)", README)
    assert targets
    assert [target for target in targets if not re.match(r"https?://|#", target)] == []


def test_pictures_exist() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README)
    assert pictures
    assert [picture for picture in pictures if not (ROOT / picture).is_file()] == []
