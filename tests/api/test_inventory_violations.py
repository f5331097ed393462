"""Violations in the inventories of a body, also under a key that cannot be the name of a class."""

from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import Api
from tests.support.cloud import uuid_of

HOST = uuid_of("host")


@pytest.fixture(autouse=True)
def _host(api: Api) -> None:
    api("POST", "/resource_providers", {"name": "host", "uuid": HOST})


def problem(api: Api, method: str, path: str, body: Any) -> str:
    response = api(method, path, body)
    assert response.status_code == 400
    detail: str = response.json["errors"][0]["detail"]
    return detail


def reshape(inventories: Any, allocations: Any) -> dict[str, Any]:
    of_host = {"resource_provider_generation": 0, "inventories": inventories}
    return {"inventories": {HOST: of_host}, "allocations": allocations}


@pytest.mark.parametrize("key", ["VCPU", "a"])
def test_violation_names_the_whole_path(api: Api, key: str) -> None:
    path = f"On instance['inventories']['{HOST}']['inventories']['{key}']"
    assert f"{path}: 1" in problem(api, "POST", "/reshaper", reshape({key: 1}, {}))
    assert f"{path}['total']: -1" in problem(api, "POST", "/reshaper", reshape({key: {"total": -1}}, {}))
    body = {"resource_provider_generation": 0, "inventories": {key: {"total": "x"}}}
    text = problem(api, "PUT", f"/resource_providers/{HOST}/inventories", body)
    assert f"On instance['inventories']['{key}']['total']: 'x'" in text


def test_violation_under_the_name_of_a_class_is_reported_first(api: Api) -> None:
    inventories = {"a": 1, "VCPU": {"total": 1, "max_unit": {}}, "b": [1]}
    body = {"resource_provider_generation": 0, "inventories": inventories}
    text = problem(api, "PUT", f"/resource_providers/{HOST}/inventories", body)
    assert "On instance['inventories']['VCPU']['max_unit']: {}" in text
    text = problem(api, "POST", "/reshaper", reshape({"a": 1}, {str(uuid4()): {"allocations": {"a": 1}}}))
    assert "On instance['allocations']" in text


@pytest.mark.parametrize("key", ["VCPU", "a"])
def test_violation_that_is_less_deep_is_reported(api: Api, key: str) -> None:
    body = {"resource_provider_generation": "x", "inventories": {key: 1}}
    text = problem(api, "PUT", f"/resource_providers/{HOST}/inventories", body)
    assert "On instance['resource_provider_generation']: 'x'" in text
    text = problem(api, "POST", "/reshaper", reshape({key: None}, {"x": 1}))
    assert "'x' does not match any of the regexes" in text
    text = problem(api, "POST", "/reshaper", reshape({key: 1}, {str(uuid4()): {}}))
    assert "'allocations' is a required property" in text
