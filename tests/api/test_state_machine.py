"""All writes in any order: responses and stored data are as `tests.support.model` predicts.

`pytest --hypothesis-profile=deep` runs it for longer.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import Engine, text

from placement_svc.db.tables import FIRST_CUSTOM_ID, metadata
from tests.conftest import Api, examples
from tests.support.cloud import uuid_of
from tests.support.model import UNCHANGED, Model, Refused

SETTINGS = settings(
    max_examples=examples(20),
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
PROVIDERS = [uuid_of(name) for name in NAMES[:5]]
CONSUMERS = [uuid_of(name) for name in ("server", "volume", "port")]
AGGREGATES = [uuid_of(name) for name in "AB"]
CUSTOM_CLASSES = ["CUSTOM_GOLD", "CUSTOM_IRON", "CUSTOM_CLAY"]
CUSTOM_TRAITS = ["CUSTOM_BLUE", "CUSTOM_RED"]

providers = st.sampled_from(PROVIDERS)
names = st.sampled_from(NAMES)
consumers = st.sampled_from(CONSUMERS)
classes = st.sampled_from(["VCPU", "DISK_GB", *CUSTOM_CLASSES])
custom_classes = st.sampled_from([*CUSTOM_CLASSES * 3, "VCPU"])
traits = st.sampled_from(["HW_CPU_X86_AVX", "STORAGE_DISK_SSD", *CUSTOM_TRAITS])
custom_traits = st.sampled_from([*CUSTOM_TRAITS * 4, "HW_CPU_X86_AVX"])
off = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1])
"""The difference between a sent generation and the stored one."""
amounts = st.sampled_from([1, 2, 3, 4, 6, 12])
records = st.fixed_dictionaries(
    {"total": st.sampled_from([4, 8, 16, 2])},
    optional={
        "reserved": st.sampled_from([0, 1, 4, 8]),
        "min_unit": st.sampled_from([1, 2]),
        "max_unit": st.sampled_from([4, 8]),
        "step_size": st.sampled_from([1, 2]),
        "allocation_ratio": st.sampled_from([0.5, 1.5, 16.0]),
    },
)
inventories = st.dictionaries(classes, records, max_size=3)


def minors(*numbers: int) -> st.SearchStrategy[int]:
    return st.sampled_from(numbers)


STORED = text(
    " UNION ALL ".join(
        f"SELECT '{table.name}', coalesce(jsonb_agg(t ORDER BY to_jsonb(t)), '[]') FROM {table.name} t"
        + (f" WHERE id >= {FIRST_CUSTOM_ID}" if table.name in ("traits", "resource_classes") else "")
        for table in metadata.sorted_tables
    )
)
"""All rows of each table, without the standard names."""

# Independent of `placement-svc audit`: a test that used its rules would miss the faults that they miss.
FAULTS = text("""
    WITH RECURSIVE tree AS (
        SELECT id, id AS root_id, ARRAY[id] AS path FROM resource_providers WHERE parent_id IS NULL
         UNION ALL
        SELECT child.id, tree.root_id, tree.path || child.id
          FROM resource_providers AS child JOIN tree ON tree.id = child.parent_id
    )
    SELECT 'used is not the sum of the allocations' AS fault, provider_id AS id
      FROM inventories LEFT JOIN allocations USING (provider_id, resource_class_id)
     GROUP BY provider_id, resource_class_id
    HAVING inventories.used <> coalesce(sum(allocations.used), 0)
     UNION ALL
    SELECT 'a consumer has no allocations', id
      FROM consumers
     WHERE id NOT IN (SELECT consumer_id FROM allocations)
     UNION ALL
    SELECT 'root and path are not those of the tree', id
      FROM resource_providers AS provider LEFT JOIN tree USING (id)
     WHERE (provider.root_id, provider.path) IS DISTINCT FROM (tree.root_id, tree.path)
     UNION ALL
    SELECT 'trait_ids are not the traits', id
      FROM resource_providers
     WHERE trait_ids <> ARRAY(SELECT trait_id FROM provider_traits WHERE provider_id = id ORDER BY trait_id)
     UNION ALL
    SELECT 'a root is not that of the provider', id
      FROM resource_providers AS provider
      JOIN (SELECT provider_id, root_id FROM inventories
             UNION ALL
            SELECT provider_id, root_id FROM provider_aggregates) AS dependent ON provider_id = id
     WHERE dependent.root_id <> provider.root_id
""")


def test_writes_in_any_order(api: Api, clean_database: Callable[[], None], engine: Engine) -> None:
    def machine() -> Writes:
        clean_database()
        return Writes(api, engine)

    run_state_machine_as_test(machine, settings=SETTINGS)


class Writes(RuleBasedStateMachine):
    """Sends writes, most of which succeed, and compares the results with the model."""

    def __init__(self, api: Api, engine: Engine) -> None:
        super().__init__()
        self.api = api
        self.connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.model = Model()
        self.stored = self.read()
        self.standard = self.standard_names()

    def teardown(self) -> None:
        self.connection.close()

    def send(
        self,
        predict: Callable[..., int],
        arguments: tuple[Any, ...],
        minor: int,
        request: str,
        body: Any = None,
    ) -> None:
        """Send a request, and compare the response and the stored data with the prediction of the model."""
        code = None
        try:
            status = predict(*arguments)
        except Refused as refused:
            status, code = refused.status, f"placement.{refused.code}"
        method, path = request.split()
        response = self.api(method, path, body, f"1.{minor}")
        note(f"{method} {path} 1.{minor} {body} -> {response.status_code}")
        assert response.status_code == status
        if code and minor >= 23:
            assert response.json["errors"][0]["code"] == code
        before, self.stored = self.stored, self.read()
        if code:
            assert self.stored == before
        assert overcommitted_more(before, self.stored) == []
        assert with_lower_generation(before, self.stored) == []

    def read(self) -> dict[str, list[dict[str, Any]]]:
        return dict(self.connection.execute(STORED).all())

    def standard_names(self) -> dict[str, dict[int, str]]:
        return {
            table: dict(self.connection.execute(text(f"SELECT id, name FROM {table}")).all())
            for table in ("traits", "resource_classes")
        }

    @invariant()
    def stored_data_has_no_faults(self) -> None:
        assert self.connection.execute(FAULTS).all() == []

    @invariant()
    def stored_data_equals_the_model(self) -> None:
        actual = as_model(self.stored, self.standard)
        assert actual == (
            self.model.providers,
            self.model.consumers,
            self.model.traits,
            self.model.classes,
        )

    def generation(self, uuid: str, off: int = 0) -> int:
        """Return the generation of a provider plus `off`."""
        return self.model.providers.get(uuid, {"generation": 0})["generation"] + off

    def consumer_generation(self, uuid: str, off: int) -> int | None:
        """Return the generation of a consumer plus `off`; None is correct for one that does not exist."""
        if uuid in self.model.consumers:
            return self.model.consumers[uuid]["generation"] + off
        return off or None

    def claim(self, data: st.DataObject, uuid: str, minor: int) -> dict[str, Any]:
        """Draw the claim of a consumer, mostly on existing inventories."""
        existing = [(uuid, name) for uuid, p in self.model.providers.items() for name in p["inventories"]]
        pair = st.one_of(*[st.sampled_from(existing)] * 9 if existing else [], st.tuples(providers, classes))
        allocations: dict[str, Any] = {}
        for provider, name in data.draw(st.lists(pair, max_size=3)):
            resources = allocations.setdefault(provider, {"resources": {}})["resources"]
            resources[name] = data.draw(amounts)
        return self.body(
            uuid, allocations, data.draw(off), data.draw(st.sampled_from(["red", "blue"])), minor
        )

    def body(self, uuid: str, allocations: Any, off: int, owner: str, minor: int) -> dict[str, Any]:
        """Return the body of a consumer's claim at a microversion."""
        claim = {"allocations": allocations}
        if minor >= 8:
            claim |= {"project_id": owner, "user_id": owner}
        if minor >= 28:
            claim["consumer_generation"] = self.consumer_generation(uuid, off)
        if minor >= 38:
            claim["consumer_type"] = owner.upper()
        return claim

    # Providers

    @initialize()
    def start(self) -> None:
        for name, uuid, parent in zip(NAMES[:4], PROVIDERS, [None, *PROVIDERS[:2], None], strict=False):
            self.create_provider(uuid, name, parent, 39)
            self.replace_inventories(uuid, 0, {"VCPU": {"total": 8}, "DISK_GB": {"total": 16}}, 39)
        self.create_class("CUSTOM_GOLD")
        self.ensure_trait("CUSTOM_BLUE")
        allocations = {uuid: {"resources": {"VCPU": 2, "DISK_GB": 2}} for uuid in PROVIDERS[:3]}
        claims = {uuid: self.body(uuid, allocations, 0, "red", 39) for uuid in CONSUMERS[:2]}
        self.send(self.model.replace_consumers, (claims, 39), 39, "POST /allocations", claims)

    @rule(uuid=providers, name=names, parent=st.none() | providers, minor=minors(0, 14, 19, 20, 39))
    def create_provider(self, uuid: str, name: str, parent: str | None, minor: int) -> None:
        body = {"uuid": uuid, "name": name} | ({"parent_provider_uuid": parent} if parent else {})
        self.send(
            self.model.create_provider, (uuid, name, parent, minor), minor, "POST /resource_providers", body
        )

    @rule(
        uuid=providers,
        name=names,
        parent=st.sampled_from([UNCHANGED, None]) | providers,
        minor=minors(0, 14, 36, 37, 37, 39, 39),
    )
    def change_provider(self, uuid: str, name: str, parent: str | None, minor: int) -> None:
        body = {"name": name} | ({} if parent == UNCHANGED else {"parent_provider_uuid": parent})
        arguments = uuid, name, parent, minor
        self.send(self.model.change_provider, arguments, minor, f"PUT /resource_providers/{uuid}", body)

    @rule(uuid=providers)
    def delete_provider(self, uuid: str) -> None:
        self.send(self.model.delete_provider, (uuid,), 39, f"DELETE /resource_providers/{uuid}")

    # Inventories

    @rule(uuid=providers, name=classes, record=records, minor=minors(0, 25, 26, 39))
    def add_inventory(self, uuid: str, name: str, record: Any, minor: int) -> None:
        path = f"/resource_providers/{uuid}/inventories"
        body = {"resource_class": name, **record}
        self.send(self.model.add_inventory, (uuid, name, record, minor), minor, f"POST {path}", body)

    @rule(uuid=providers, off=off, wanted=inventories, minor=minors(0, 25, 26, 39))
    def replace_inventories(self, uuid: str, off: int, wanted: Any, minor: int) -> None:
        path = f"/resource_providers/{uuid}/inventories"
        generation = self.generation(uuid, off)
        body = {"resource_provider_generation": generation, "inventories": wanted}
        arguments = uuid, generation, wanted, minor
        self.send(self.model.replace_inventories, arguments, minor, f"PUT {path}", body)

    @rule(uuid=providers, name=classes, off=off, record=records, minor=minors(0, 25, 26, 39))
    def replace_inventory(self, uuid: str, name: str, off: int, record: Any, minor: int) -> None:
        path = f"/resource_providers/{uuid}/inventories/{name}"
        generation = self.generation(uuid, off)
        body = {"resource_provider_generation": generation, **record}
        arguments = uuid, generation, name, record, minor
        self.send(self.model.replace_inventory, arguments, minor, f"PUT {path}", body)

    @rule(uuid=providers, name=classes)
    def delete_inventory(self, uuid: str, name: str) -> None:
        path = f"/resource_providers/{uuid}/inventories/{name}"
        self.send(self.model.delete_inventory, (uuid, name), 39, f"DELETE {path}")

    @rule(uuid=providers, minor=minors(4, 5, 39))
    def delete_inventories(self, uuid: str, minor: int) -> None:
        path = f"/resource_providers/{uuid}/inventories"
        self.send(self.model.delete_inventories, (uuid, minor), minor, f"DELETE {path}")

    # Aggregates and traits of a provider

    @rule(
        uuid=providers,
        aggregates=st.lists(st.sampled_from(AGGREGATES), unique=True),
        off=off,
        minor=minors(1, 18, 19, 39),
    )
    def replace_aggregates(self, uuid: str, aggregates: list[str], off: int, minor: int) -> None:
        path = f"/resource_providers/{uuid}/aggregates"
        generation = self.generation(uuid, off)
        since_19 = {"aggregates": aggregates, "resource_provider_generation": generation}
        arguments = uuid, aggregates, generation, minor
        body = since_19 if minor >= 19 else aggregates
        self.send(self.model.replace_aggregates, arguments, minor, f"PUT {path}", body)

    @rule(uuid=providers, wanted=st.lists(traits, max_size=3), off=off)
    def replace_traits(self, uuid: str, wanted: list[str], off: int) -> None:
        generation = self.generation(uuid, off)
        body = {"traits": wanted, "resource_provider_generation": generation}
        path = f"/resource_providers/{uuid}/traits"
        self.send(self.model.replace_traits, (uuid, wanted, generation), 39, f"PUT {path}", body)

    @rule(uuid=providers)
    def delete_traits(self, uuid: str) -> None:
        self.send(self.model.delete_traits, (uuid,), 39, f"DELETE /resource_providers/{uuid}/traits")

    # Names

    @rule(name=custom_traits)
    def ensure_trait(self, name: str) -> None:
        self.send(self.model.ensure_trait, (name,), 39, f"PUT /traits/{name}")

    @rule(name=custom_traits)
    def delete_trait(self, name: str) -> None:
        self.send(self.model.delete_trait, (name,), 39, f"DELETE /traits/{name}")

    @rule(name=custom_classes)
    def create_class(self, name: str) -> None:
        self.send(self.model.create_class, (name,), 39, "POST /resource_classes", {"name": name})

    @rule(name=custom_classes)
    def ensure_class(self, name: str) -> None:
        self.send(self.model.ensure_class, (name,), 7, f"PUT /resource_classes/{name}")

    @rule(name=custom_classes, new_name=custom_classes)
    def rename_class(self, name: str, new_name: str) -> None:
        path = f"/resource_classes/{name}"
        self.send(self.model.rename_class, (name, new_name), 6, f"PUT {path}", {"name": new_name})

    @rule(name=custom_classes)
    def delete_class(self, name: str) -> None:
        self.send(self.model.delete_class, (name,), 39, f"DELETE /resource_classes/{name}")

    # Allocations

    @rule(data=st.data(), uuid=consumers, minor=minors(0, 8, 12, 27, 28, 37, 38, 39, 39))
    def replace_consumer(self, data: st.DataObject, uuid: str, minor: int) -> None:
        claim = body = self.claim(data, uuid, minor)
        if minor < 12:
            body = claim | {
                "allocations": [
                    {"resource_provider": {"uuid": provider}, **allocation}
                    for provider, allocation in claim["allocations"].items()
                ]
            }
        path = f"/allocations/{uuid}"
        self.send(self.model.replace_consumer, (uuid, claim, minor), minor, f"PUT {path}", body)

    @rule(
        data=st.data(), uuids=st.lists(consumers, min_size=1, unique=True), minor=minors(13, 27, 28, 38, 39)
    )
    def replace_consumers(self, data: st.DataObject, uuids: list[str], minor: int) -> None:
        claims = {uuid: self.claim(data, uuid, minor) for uuid in uuids}
        self.send(self.model.replace_consumers, (claims, minor), minor, "POST /allocations", claims)

    @rule(source=consumers, receiver=consumers, off=off, minor=minors(13, 28, 39))
    def move_allocations(self, source: str, receiver: str, off: int, minor: int) -> None:
        allocations = self.allocations(source)
        claims = {
            source: self.body(source, {}, 0, "red", minor),
            receiver: self.body(receiver, allocations, off, "blue", minor),
        }
        self.send(self.model.replace_consumers, (claims, minor), minor, "POST /allocations", claims)

    def allocations(self, uuid: str) -> dict[str, Any]:
        """Return the allocations of a consumer as in a request body."""
        allocations: dict[str, Any] = {}
        for (provider, name), amount in self.model.consumers.get(uuid, {"allocations": {}})[
            "allocations"
        ].items():
            allocations.setdefault(provider, {"resources": {}})["resources"][name] = amount
        return allocations

    @rule(uuid=consumers)
    def delete_consumer(self, uuid: str) -> None:
        self.send(self.model.delete_consumer, (uuid,), 39, f"DELETE /allocations/{uuid}")

    # Reshapes

    @rule(
        data=st.data(),
        wanted=st.dictionaries(providers, inventories, min_size=1, max_size=2),
        uuids=st.lists(consumers, max_size=2, unique=True),
        off=off,
        minor=minors(30, 38, 39),
    )
    def reshape(
        self, data: st.DataObject, wanted: dict[str, Any], uuids: list[str], off: int, minor: int
    ) -> None:
        self.send_reshape(wanted, {uuid: self.claim(data, uuid, minor) for uuid in uuids}, off, minor)

    @rule(source=providers, receiver=providers, off=off, minor=minors(30, 39))
    def reshape_to_another_provider(self, source: str, receiver: str, off: int, minor: int) -> None:
        """Move all inventories and allocations of one provider to another one."""
        inventories = {
            uuid: self.model.providers.get(uuid, {"inventories": {}})["inventories"]
            for uuid in (source, receiver)
        }
        moved = [uuid for uuid in CONSUMERS if source in self.allocations(uuid)]
        claims = {}
        for uuid in moved:
            allocations = self.allocations(uuid)
            resources = allocations.pop(source)["resources"]
            resources = allocations.get(receiver, {"resources": {}})["resources"] | resources
            claims[uuid] = self.body(
                uuid, {**allocations, receiver: {"resources": resources}}, 0, "red", minor
            )
        self.send_reshape(
            {source: {}, receiver: inventories[receiver] | inventories[source]}, claims, off, minor
        )

    def send_reshape(self, wanted: dict[str, Any], claims: dict[str, Any], off: int, minor: int) -> None:
        generations = {uuid: self.generation(uuid, off) for uuid in wanted}
        body = {
            "inventories": {
                uuid: {"resource_provider_generation": generations[uuid], "inventories": records}
                for uuid, records in wanted.items()
            },
            "allocations": claims,
        }
        inventories = {uuid: (generations[uuid], records) for uuid, records in wanted.items()}
        self.send(self.model.reshape, (inventories, claims, minor), minor, "POST /reshaper", body)


def overcommitted_more(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> list[Any]:
    """Return the inventories used beyond their capacity, and more than before."""
    used = {(row["provider_id"], row["resource_class_id"]): row["used"] for row in before["inventories"]}
    return [
        row
        for row in after["inventories"]
        if row["capacity"] < row["used"] > used.get((row["provider_id"], row["resource_class_id"]), 0)
    ]


def with_lower_generation(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> list[Any]:
    """Return the providers and consumers whose generation has decreased."""
    return [
        row
        for table in ("resource_providers", "consumers")
        for was in before[table]
        for row in after[table]
        if row["id"] == was["id"] and row["generation"] < was["generation"]
    ]


def as_model(
    stored: dict[str, list[dict[str, Any]]], standard: dict[str, dict[int, str]]
) -> tuple[dict[str, Any], dict[str, Any], set[str], set[str]]:
    """Return the stored data in the form of `Model`: providers, consumers, custom traits, custom classes."""

    def named(table: str, column: str) -> dict[int, str]:
        return {row["id"]: row[column] for row in stored[table]}

    uuids = named("resource_providers", "uuid")
    class_names = standard["resource_classes"] | named("resource_classes", "name")
    trait_names = standard["traits"] | named("traits", "name")
    aggregate_uuids = named("aggregates", "uuid")
    projects, users = named("projects", "external_id"), named("users", "external_id")
    types = named("consumer_types", "name")
    stored_providers = {
        row["uuid"]: {
            "name": row["name"],
            "generation": row["generation"],
            "parent": uuids.get(row["parent_id"]),
            "inventories": {},
            "traits": {trait_names[id_] for id_ in row["trait_ids"]},
            "aggregates": set(),
        }
        for row in stored["resource_providers"]
    }
    fields = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
    for row in stored["inventories"]:
        provider = stored_providers[uuids[row["provider_id"]]]
        provider["inventories"][class_names[row["resource_class_id"]]] = {
            field: row[field] for field in fields
        }
    for row in stored["provider_aggregates"]:
        stored_providers[uuids[row["provider_id"]]]["aggregates"].add(aggregate_uuids[row["aggregate_id"]])
    stored_consumers = {
        row["id"]: {
            "generation": row["generation"],
            "project": projects[row["project_id"]],
            "user": users[row["user_id"]],
            "type": types.get(row["consumer_type_id"]),
            "allocations": {},
        }
        for row in stored["consumers"]
    }
    for row in stored["allocations"]:
        pair = uuids[row["provider_id"]], class_names[row["resource_class_id"]]
        stored_consumers[row["consumer_id"]]["allocations"][pair] = row["used"]
    return (
        stored_providers,
        {row["uuid"]: stored_consumers[row["id"]] for row in stored["consumers"]},
        set(named("traits", "name").values()),
        set(named("resource_classes", "name").values()),
    )
