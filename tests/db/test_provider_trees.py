"""Provider trees: moves, their effect on other rows, and refused changes (`docs/spec/resources.md 2`)."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from werkzeug.test import TestResponse

from tests.conftest import Api
from tests.support.soundness import audit_faults

Request = Callable[[], TestResponse]

ROUNDS = 5


@pytest.fixture(autouse=True)
def _consistent_trees(engine: Engine) -> Iterator[None]:
    """Check after every test that the trees and the columns derived from them are consistent."""
    yield
    assert audit_faults(engine) == {}


def race(*requests: Request) -> list[TestResponse]:
    """Send all requests concurrently; return their responses in order."""
    start = Barrier(len(requests))

    def send(request: Request) -> TestResponse:
        start.wait()
        return request()

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(send, requests))


class Trees:
    """Requests for providers, which the tests call by short names."""

    def __init__(self, api: Api, engine: Engine) -> None:
        self.api = api
        self.engine = engine
        self.uuids: dict[str, str] = {}

    def create(self, name: str, parent: str | None = None) -> TestResponse:
        uuid = self.uuids.setdefault(name, str(uuid4()))
        body = {"name": uuid, "uuid": uuid}
        if parent:
            body["parent_provider_uuid"] = self.uuids[parent]
        return self.api("POST", "/resource_providers", body)

    def create_branches(self, *branches: str) -> None:
        """Create the providers of branches: in "abc", c is a child of b, and b of a. Existing ones remain."""
        for branch in branches:
            for parent, name in zip([None, *branch], branch, strict=False):
                if name not in self.uuids:
                    assert self.create(name, parent).status_code == 200

    def add_data(self, name: str) -> None:
        """Give a provider two inventories, an aggregate and a trait."""
        path = f"/resource_providers/{self.uuids[name]}"
        body: dict[str, Any] = {
            "resource_provider_generation": 0,
            "inventories": {"VCPU": {"total": 1}, "DISK_GB": {"total": 1}},
        }
        assert self.api("PUT", f"{path}/inventories", body).status_code == 200
        body = {"resource_provider_generation": 1, "aggregates": [str(uuid4())]}
        assert self.api("PUT", f"{path}/aggregates", body).status_code == 200
        body = {"resource_provider_generation": 2, "traits": ["HW_CPU_X86_AVX"]}
        assert self.api("PUT", f"{path}/traits", body).status_code == 200

    def move(self, name: str, parent: str | None, version: str = "1.39") -> TestResponse:
        uuid = self.uuids[name]
        body = {"name": uuid, "parent_provider_uuid": self.uuids[parent] if parent else None}
        return self.api("PUT", f"/resource_providers/{uuid}", body, version)

    def delete(self, name: str) -> TestResponse:
        return self.api("DELETE", f"/resource_providers/{self.uuids[name]}")

    def parent_and_root(self, name: str) -> tuple[str | None, str]:
        """Return the parent and the root of a provider, as the API shows them."""
        body: Any = self.api("GET", f"/resource_providers/{self.uuids[name]}").json
        names = {uuid: name for name, uuid in self.uuids.items()}
        return names.get(body["parent_provider_uuid"]), names[body["root_provider_uuid"]]

    def path(self, name: str) -> str:
        """Return the stored path of a provider."""
        names = {uuid: name for name, uuid in self.uuids.items()}
        with self.engine.connect() as connection:
            uuids = connection.scalars(
                text("""
                    SELECT ancestor.uuid
                      FROM resource_providers AS provider
                     CROSS JOIN unnest(provider.path) WITH ORDINALITY AS step (id, position)
                      JOIN resource_providers AS ancestor ON ancestor.id = step.id
                     WHERE provider.uuid = :uuid
                     ORDER BY position
                """),
                {"uuid": self.uuids[name]},
            )
            return "".join(names[uuid] for uuid in uuids)

    def rows_with_root(self, name: str, table: str) -> int:
        """Return how many rows of a table have the id of a root provider in `root_id`."""
        with self.engine.connect() as connection:
            count: int = connection.scalar(
                text(f"""
                    SELECT count(*)
                      FROM {table} AS item
                      JOIN resource_providers AS root ON root.id = item.root_id
                     WHERE root.uuid = :uuid
                """),
                {"uuid": self.uuids[name]},
            )
            return count


@pytest.fixture
def trees(api: Api, engine: Engine) -> Trees:
    """Return an empty `Trees`."""
    return Trees(api, engine)


def statuses(responses: list[TestResponse]) -> list[int]:
    return sorted(response.status_code for response in responses)


def detail(response: TestResponse) -> str:
    return response.json["errors"][0]["detail"]  # type: ignore[index]


def test_new_provider_is_below_its_parent(trees: Trees) -> None:
    trees.create_branches("abc", "ad")
    assert [trees.path(name) for name in "abcd"] == ["a", "ab", "abc", "ad"]
    assert [trees.parent_and_root(name) for name in "abcd"] == [
        (None, "a"),
        ("a", "a"),
        ("b", "a"),
        ("a", "a"),
    ]


def test_whole_branch_moves_to_another_tree(trees: Trees) -> None:
    trees.create_branches("abcd", "bef", "ag", "xy")
    for name in "abcdg":
        trees.add_data(name)
    assert trees.rows_with_root("a", "inventories") == 10
    assert trees.move("b", "y").status_code == 200
    assert [trees.path(name) for name in "bcdef"] == ["xyb", "xybc", "xybcd", "xybe", "xybef"]
    assert [trees.path(name) for name in "agxy"] == ["a", "ag", "x", "xy"]
    assert trees.parent_and_root("b") == ("y", "x")
    assert trees.parent_and_root("d") == ("c", "x")
    assert [trees.rows_with_root(n, "inventories") for n in "ax"] == [4, 6]
    for table in ("provider_aggregates", "provider_traits"):
        assert [trees.rows_with_root(n, table) for n in "ax"] == [2, 3]


def test_branch_moves_within_its_tree(trees: Trees) -> None:
    trees.create_branches("abcd", "ae")
    trees.add_data("d")
    assert trees.move("c", "e").status_code == 200
    assert [trees.path(name) for name in "abcde"] == ["a", "ab", "aec", "aecd", "ae"]
    assert trees.move("c", "a").status_code == 200
    assert [trees.path(name) for name in "abcde"] == ["a", "ab", "ac", "acd", "ae"]


def test_branch_becomes_a_tree(trees: Trees) -> None:
    trees.create_branches("abcd")
    for name in "abcd":
        trees.add_data(name)
    assert trees.move("b", None).status_code == 200
    assert [trees.path(name) for name in "abcd"] == ["a", "b", "bc", "bcd"]
    assert [trees.parent_and_root(name) for name in "bd"] == [(None, "b"), ("c", "b")]
    assert [trees.rows_with_root(n, "inventories") for n in "ab"] == [2, 6]
    assert [trees.rows_with_root(n, "provider_aggregates") for n in "ab"] == [1, 3]


@pytest.mark.parametrize("version", ["1.14", "1.36", "1.37", "1.39"])
def test_tree_becomes_a_branch(trees: Trees, version: str) -> None:
    trees.create_branches("ab", "xy")
    trees.add_data("b")
    assert trees.move("a", "y", version).status_code == 200
    assert [trees.path(name) for name in "ab"] == ["xya", "xyab"]
    assert trees.rows_with_root("x", "inventories") == 2


def test_same_parent_does_not_move_the_branch(trees: Trees) -> None:
    trees.create_branches("abc")
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        assert trees.move(name, parent, "1.36").status_code == 200
    assert [trees.path(name) for name in "abc"] == ["a", "ab", "abc"]


def test_move_does_not_increment_the_generation(trees: Trees) -> None:
    trees.create_branches("ab", "x")
    trees.add_data("b")
    moved = trees.move("b", "x")
    assert moved.json["generation"] == 3  # type: ignore[index]


@pytest.mark.parametrize("parent", [None, "x"])
def test_branch_cannot_leave_its_parent_before_1_37(trees: Trees, parent: str | None) -> None:
    trees.create_branches("abc", "x")
    response = trees.move("b", parent, "1.36")
    assert response.status_code == 400
    assert f"{'re' if parent else 'un'}-parenting a provider is not currently allowed" in detail(response)
    assert trees.path("c") == "abc"


@pytest.mark.parametrize(("name", "parent"), ["aa", "ab", "ad", "bb", "bc", "bd", "dd"])
@pytest.mark.parametrize("version", ["1.37", "1.39"])
def test_loop_is_refused(trees: Trees, name: str, parent: str, version: str) -> None:
    trees.create_branches("abcd")
    response = trees.move(name, parent, version)
    assert response.status_code == 400
    assert "creating loop in the provider tree is not allowed" in detail(response)
    assert trees.path("d") == "abcd"


def test_parent_cannot_be_deleted_before_its_children(trees: Trees) -> None:
    trees.create_branches("abc")
    response = trees.delete("b")
    assert response.status_code == 409
    assert response.json["errors"][0]["code"] == "placement.resource_provider.cannot_delete_parent"  # type: ignore[index]
    assert [trees.delete(name).status_code for name in "cba"] == [204, 204, 204]


def test_parent_can_be_deleted_after_its_children_move(trees: Trees) -> None:
    trees.create_branches("abc")
    trees.move("c", "a")
    assert trees.delete("b").status_code == 204
    assert trees.path("c") == "ac"


def test_two_concurrent_moves_under_each_other_make_no_loop(trees: Trees) -> None:
    for n in range(ROUNDS):
        root1, root2, leaf1, leaf2 = (f"{name}.{n}" for name in ("root1", "root2", "leaf1", "leaf2"))
        for name, parent in ((root1, None), (root2, None), (leaf1, root1), (leaf2, root2)):
            trees.create(name, parent)
        responses = race(partial(trees.move, root1, leaf2), partial(trees.move, root2, leaf1))
        assert statuses(responses) == [200, 400]
        [failed] = [response for response in responses if response.status_code == 400]
        assert "creating loop" in detail(failed)
        assert len({trees.parent_and_root(name)[1] for name in (root1, root2, leaf1, leaf2)}) == 1


def test_three_concurrent_moves_in_a_circle_make_no_loop(trees: Trees) -> None:
    trees.create_branches("a", "b", "c", "z")
    for _ in range(ROUNDS):
        responses = race(
            partial(trees.move, "a", "b"), partial(trees.move, "b", "c"), partial(trees.move, "c", "a")
        )
        assert statuses(responses) == [200, 200, 400]
        responses = race(*(partial(trees.move, name, None) for name in "abc"))
        assert statuses(responses) == [200, 200, 200]


def test_providers_are_created_while_their_tree_moves(trees: Trees) -> None:
    trees.create_branches("abc", "x", "y")
    trees.add_data("c")

    def create_branch(*names: str) -> TestResponse:
        for parent, name in pairwise(["c", *names]):
            response = trees.create(name, parent)
            if response.status_code != 200:
                break
        return response

    for n in range(ROUNDS):
        branches = [[f"{n}.{branch}.{depth}" for depth in range(4)] for branch in range(4)]
        target = "xy"[n % 2]
        responses = race(
            partial(trees.move, "b", target),
            partial(trees.move, "a", "y" if target == "x" else None),
            *(partial(create_branch, *names) for names in branches),
        )
        assert statuses(responses) == [200] * 6
        assert {trees.parent_and_root(names[-1]) for names in branches} == {
            (names[-2], target) for names in branches
        }


def test_data_of_providers_is_written_while_their_tree_moves(trees: Trees, api: Api) -> None:
    trees.create_branches("abc", "x")
    for n in range(ROUNDS):
        path = f"/resource_providers/{trees.uuids['c']}"
        inventories = {
            "resource_provider_generation": n,
            "inventories": {"VCPU": {"total": n + 1}, "DISK_GB": {"total": 1}},
        }
        aggregates = [str(uuid4()) for _ in range(3)]
        responses = race(
            partial(trees.move, "b", "ax"[(n + 1) % 2]),
            partial(api, "PUT", f"{path}/inventories", inventories),
            partial(api, "PUT", f"{path}/aggregates", aggregates, "1.18"),
        )
        assert statuses(responses) == [200, 200, 200]
        root = "ax"[(n + 1) % 2]
        assert trees.rows_with_root(root, "inventories") == 2
        assert trees.rows_with_root(root, "provider_aggregates") == 3


def test_concurrent_moves_of_nested_branches(trees: Trees) -> None:
    trees.create_branches("abcd", "xyz")
    for _ in range(ROUNDS):
        responses = race(
            partial(trees.move, "c", "x"),
            partial(trees.move, "d", "y"),
            partial(trees.move, "y", "a"),
            partial(trees.move, "z", "b"),
        )
        assert set(statuses(responses)) <= {200, 400}
        responses = race(*(partial(trees.move, name, None) for name in "cdyz"))
        assert statuses(responses) == [200] * 4


def test_parent_is_deleted_or_gets_a_child(trees: Trees) -> None:
    trees.create_branches("a")
    for n in range(ROUNDS):
        parent, child = f"parent{n}", f"child{n}"
        trees.create(parent, "a")
        deleted, created = race(partial(trees.delete, parent), partial(trees.create, child, parent))
        assert (deleted.status_code, created.status_code) in [(204, 400), (409, 200)]
        if created.status_code == 400:
            assert "parent provider UUID does not exist" in detail(created)


def test_parent_is_deleted_or_gets_a_branch(trees: Trees) -> None:
    trees.create_branches("abc")
    for n in range(ROUNDS):
        parent = f"parent{n}"
        trees.create(parent)
        deleted, moved = race(partial(trees.delete, parent), partial(trees.move, "b", parent))
        assert (deleted.status_code, moved.status_code) in [(204, 400), (409, 200)]


def test_leaf_is_deleted_while_its_tree_moves(trees: Trees) -> None:
    trees.create_branches("ab", "x")
    for n in range(ROUNDS):
        trees.create(f"leaf{n}", "b")
        responses = race(partial(trees.move, "b", "xa"[n % 2]), partial(trees.delete, f"leaf{n}"))
        assert statuses(responses) == [200, 204]
