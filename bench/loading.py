"""Load clouds into databases with COPY; over HTTP, a large cloud would take hours."""

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, text

from bench.clouds import Cloud, Provider, uuid_of
from bench.services import Service

PROJECT = "bench"
USER = "bench"
CONSUMER_TYPE = "INSTANCE"

INVENTORY_COLUMNS = (
    "resource_class_id",
    "total",
    "reserved",
    "min_unit",
    "max_unit",
    "step_size",
    "allocation_ratio",
)


@dataclass(frozen=True)
class Rows:
    """Rows of a table; each row has the values of `columns`, in this order."""

    table: str
    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class _ProviderIds:
    """A provider with its id and its path: the ids of its ancestors, root first, and its own."""

    id: int
    provider: Provider
    path: tuple[int, ...]

    @property
    def root_id(self) -> int:
        return self.path[0]

    @property
    def parent_id(self) -> int | None:
        return self.path[-2] if len(self.path) > 1 else None


class _Ids:
    """The ids of a cloud: the database has assigned those of names, the others are counted from 1."""

    def __init__(self, connection: Connection, cloud: Cloud) -> None:
        self.traits = _ids_of_names(connection, "traits")
        self.resource_classes = _ids_of_names(connection, "resource_classes")
        names = dict.fromkeys(name for provider in cloud.providers for name in provider.aggregates)
        self.aggregates = {name: number for number, name in enumerate(names, 1)}
        self.providers: dict[str, _ProviderIds] = {}
        for number, provider in enumerate(cloud.providers, 1):
            parent_path = self.providers[provider.parent].path if provider.parent else ()
            self.providers[provider.name] = _ProviderIds(number, provider, (*parent_path, number))

    def inventories(self, provider: Provider) -> Iterator[tuple[Any, ...]]:
        """Yield the values of `INVENTORY_COLUMNS` for each inventory of a provider."""
        for name, total in provider.inventories.items():
            yield self.resource_classes[name], total, 0, 1, total, 1, 1.0


def _ids_of_names(connection: Connection, table: str) -> dict[str, int]:
    return dict(connection.execute(text(f"SELECT name, id FROM {table}")).all())


def add_names(service: Service, cloud: Cloud) -> None:
    """Create the custom traits and resource classes of a cloud over HTTP."""
    for kind, names in (
        ("traits", {name for provider in cloud.providers for name in provider.traits}),
        ("resource_classes", {name for provider in cloud.providers for name in provider.inventories}),
    ):
        for name in sorted(name for name in names if name.startswith("CUSTOM_")):
            service.request("PUT", f"/{kind}/{name}")


def load_ours(engine: Engine, cloud: Cloud) -> None:
    """Load a cloud into an empty database of this service, after `add_names`."""
    with engine.begin() as connection:
        for rows in _rows_of_ours(cloud, _Ids(connection, cloud)):
            _copy(connection, rows)
    _analyze(engine)


def load_reference(engine: Engine, cloud: Cloud) -> None:
    """Load a cloud into an empty database of the reference, after `add_names`.

    The names of tables and columns were read from the system catalogs of such a database.
    """
    with engine.begin() as connection:
        for rows in _rows_of_reference(cloud, _Ids(connection, cloud)):
            _copy(connection, rows)
    _analyze(engine)


def _rows_of_ours(cloud: Cloud, ids: _Ids) -> Iterator[Rows]:
    providers = ids.providers.values()
    yield Rows("aggregates", ("id", "uuid"), _aggregates(ids))
    yield Rows(
        "resource_providers",
        ("id", "uuid", "name", "parent_id", "root_id", "path"),
        (
            (n.id, uuid_of(n.provider.name), n.provider.name, n.parent_id, n.root_id, _array(n.path))
            for n in providers
        ),
    )
    yield Rows("provider_traits", ("provider_id", "trait_id"), _provider_traits(ids))
    yield Rows(
        "provider_aggregates",
        ("provider_id", "root_id", "aggregate_id"),
        ((n.id, n.root_id, ids.aggregates[name]) for n in providers for name in n.provider.aggregates),
    )
    yield Rows(
        "inventories",
        ("provider_id", "root_id", *INVENTORY_COLUMNS),
        ((n.id, n.root_id, *values) for n in providers for values in ids.inventories(n.provider)),
    )
    yield from _consumers(cloud)
    yield Rows(
        "allocations",
        ("consumer_id", "provider_id", "resource_class_id", "used"),
        (
            (number, ids.providers[consumer.provider].id, ids.resource_classes[name], amount)
            for number, consumer in enumerate(cloud.consumers, 1)
            for name, amount in consumer.resources.items()
        ),
    )


def _rows_of_reference(cloud: Cloud, ids: _Ids) -> Iterator[Rows]:
    providers = ids.providers.values()
    yield Rows("placement_aggregates", ("id", "uuid"), _aggregates(ids))
    yield Rows(
        "resource_providers",
        ("id", "uuid", "name", "parent_provider_id", "root_provider_id", "generation", "created_at"),
        (
            (n.id, uuid_of(n.provider.name), n.provider.name, n.parent_id, n.root_id, 0, "now")
            for n in providers
        ),
    )
    yield Rows("resource_provider_traits", ("resource_provider_id", "trait_id"), _provider_traits(ids))
    yield Rows(
        "resource_provider_aggregates",
        ("resource_provider_id", "aggregate_id"),
        ((n.id, ids.aggregates[name]) for n in providers for name in n.provider.aggregates),
    )
    yield Rows(
        "inventories",
        ("resource_provider_id", *INVENTORY_COLUMNS),
        ((n.id, *values) for n in providers for values in ids.inventories(n.provider)),
    )
    yield from _consumers(cloud)
    yield Rows(
        "allocations",
        ("consumer_id", "resource_provider_id", "resource_class_id", "used"),
        (
            (uuid_of(consumer.name), ids.providers[consumer.provider].id, ids.resource_classes[name], amount)
            for consumer in cloud.consumers
            for name, amount in consumer.resources.items()
        ),
    )


def _aggregates(ids: _Ids) -> Iterator[tuple[int, str]]:
    return ((number, uuid_of(name)) for name, number in ids.aggregates.items())


def _provider_traits(ids: _Ids) -> Iterator[tuple[int, int]]:
    return ((n.id, ids.traits[name]) for n in ids.providers.values() for name in n.provider.traits)


def _consumers(cloud: Cloud) -> Iterator[Rows]:
    """Yield the consumers and the one project, user and consumer type that they all share."""
    yield Rows("projects", ("id", "external_id"), [(1, PROJECT)])
    yield Rows("users", ("id", "external_id"), [(1, USER)])
    yield Rows("consumer_types", ("id", "name"), [(1, CONSUMER_TYPE)])
    yield Rows(
        "consumers",
        ("id", "uuid", "generation", "project_id", "user_id", "consumer_type_id"),
        ((number, uuid_of(c.name), 1, 1, 1, 1) for number, c in enumerate(cloud.consumers, 1)),
    )


def _array(ids: Collection[int]) -> str:
    return "{" + ",".join(map(str, ids)) + "}"


def _copy(connection: Connection, rows: Rows) -> None:
    """Copy rows into their table; move its id sequence past the copied ids."""
    lines = io.StringIO()
    for row in rows.rows:
        lines.write("\t".join("\\N" if value is None else str(value) for value in row) + "\n")
    lines.seek(0)
    cursor: Any = connection.connection.cursor()
    cursor.copy_expert(f"COPY {rows.table} ({', '.join(rows.columns)}) FROM STDIN", lines)
    if "id" in rows.columns:
        sequence = f"pg_get_serial_sequence('{rows.table}', 'id')"
        connection.execute(text(f"SELECT setval({sequence}, max(id)) FROM {rows.table}"))


def _analyze(engine: Engine) -> None:
    """Run VACUUM ANALYZE, so that autovacuum does not start during the measurement."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
