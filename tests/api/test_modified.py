"""Modification times of resources in `Last-Modified` (`docs/spec/http.md 9`)."""

from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.conftest import Api
from tests.support.cloud import uuid_of

HOST, CHILD = uuid_of("host"), uuid_of("child")
CLASS = "/resource_classes/CUSTOM_GOLD"


@pytest.fixture(autouse=True)
def _old_things(api: Api, engine: Engine) -> None:
    """A root with a child, and a resource class, all of them an hour old."""
    api("POST", "/resource_providers", {"name": "host", "uuid": HOST})
    api("POST", "/resource_providers", {"name": "child", "uuid": CHILD, "parent_provider_uuid": HOST})
    api("PUT", CLASS)
    with engine.begin() as connection:
        for table in ("resource_providers", "resource_classes"):
            connection.execute(
                text(f"""
                    UPDATE {table}
                       SET created_at = created_at - interval '1 hour',
                           updated_at = updated_at - interval '1 hour'
                """)
            )


@pytest.mark.parametrize(
    ("path", "body", "version", "is_change"),
    [
        (f"/resource_providers/{HOST}", {"name": "host"}, "1.39", False),
        (f"/resource_providers/{HOST}", {"name": "host", "parent_provider_uuid": None}, "1.39", False),
        (f"/resource_providers/{HOST}", {"name": "house"}, "1.39", True),
        (f"/resource_providers/{CHILD}", {"name": "child"}, "1.39", False),
        (f"/resource_providers/{CHILD}", {"name": "child", "parent_provider_uuid": HOST}, "1.39", False),
        (f"/resource_providers/{CHILD}", {"name": "child", "parent_provider_uuid": None}, "1.39", True),
        (CLASS, {"name": "CUSTOM_GOLD"}, "1.6", False),
        (CLASS, {"name": "CUSTOM_IRON"}, "1.6", True),
    ],
)
def test_unchanged_resource_keeps_its_modification_time(
    api: Api, path: str, body: dict[str, Any], version: str, is_change: bool
) -> None:
    before = api("GET", path).last_modified
    response = api("PUT", path, body, version)
    assert response.status_code == 200
    after = api("GET", path.replace("CUSTOM_GOLD", body["name"])).last_modified
    assert (after > before) == is_change


@pytest.mark.parametrize(("parent", "is_change"), [("sibling", False), (None, True), ("other", True)])
def test_descendants_change_with_their_root(
    api: Api, engine: Engine, parent: str | None, is_change: bool
) -> None:
    for name, its_parent in (("sibling", HOST), ("other", None), ("grandchild", CHILD)):
        body = {"name": name, "uuid": uuid_of(name), "parent_provider_uuid": its_parent}
        assert api("POST", "/resource_providers", body).status_code == 200
    with engine.begin() as connection:
        connection.execute(text("UPDATE resource_providers SET created_at = created_at - interval '1 hour'"))
    paths = [f"/resource_providers/{uuid}" for uuid in (CHILD, uuid_of("grandchild"))]
    before = [api("GET", path).last_modified for path in paths]
    body = {"name": "child", "parent_provider_uuid": parent and uuid_of(parent)}
    assert api("PUT", paths[0], body).status_code == 200
    after = [api("GET", path).last_modified for path in paths]
    assert [new > old for new, old in zip(after, before, strict=True)] == [True, is_change]
