"""The examples, tables and history in docs/api.md agree with the service."""

import re
from pathlib import Path

from flask import Flask

from docs.history import updated
from placement_svc.domain import errors
from tests.support.curl import AS_ADMIN
from tests.support.documented_calls import check_examples

FILE = Path(__file__).parents[2] / "docs/api.md"
PAGE = FILE.read_text()


def test_examples_have_the_documented_responses(live: str) -> None:
    check_examples(FILE, live)


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
    listed = re.findall(r"^\| `(placement(?:_svc)?\.\S+)` \|", PAGE, re.M)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.code for kind in kinds if issubclass(kind, errors.PlacementError)}
    assert sorted(listed) == sorted(codes)


def test_history_equals_that_of_the_code() -> None:
    assert updated(PAGE) == PAGE, "update it: python -m docs.history"
