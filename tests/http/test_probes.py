"""The health probes and the metrics of the application, which are not part of the API."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, make_url, text
from werkzeug.test import TestResponse

from placement_svc.config import Settings
from placement_svc.db import revisions, schema
from placement_svc.db.connections import time_limit
from placement_svc.db.connections.engine import connect
from placement_svc.domain.placement_groups import POLICIES
from placement_svc.http.probes import PATHS, STOPPING
from placement_svc.observability import metrics as metrics_module
from tests.conftest import NewApp
from tests.support.statements import sent_statements


@pytest.fixture
def fresh(new_app: NewApp, clean_database: Callable[[], None]) -> Flask:
    """An application that has not served a request, on an empty database."""
    return new_app()


def send(app: Flask, method: str, path: str, json: Any = None, version: str = "1.39", **options: Any) -> Any:
    headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": f"placement {version}"}
    return app.test_client().open(path, method=method, json=json, headers=headers, buffered=True, **options)


def get(app: Flask, path: str, **options: Any) -> TestResponse:
    """Send a request without headers, as a probe does."""
    return app.test_client().get(path, buffered=True, **options)


def sample(app: Flask, name: str, **labels: str) -> float | None:
    """Return the value of a metric with these labels, None if it does not exist."""
    for family in text_string_to_metric_families(get(app, "/metrics").text):
        for found in family.samples:
            if found.name == name and found.labels == labels:
                return found.value
    return None


@pytest.mark.parametrize("path", PATHS)
def test_probe_needs_no_token_and_has_no_version(fresh: Flask, path: str) -> None:
    response = get(fresh, path)
    assert response.status_code == 200
    assert response.content_type.startswith("text/plain; ")
    for header in ("openstack-api-version", "x-openstack-request-id", "vary"):
        assert header not in response.headers


@pytest.mark.parametrize("path", PATHS)
def test_probe_ignores_other_headers(fresh: Flask, path: str) -> None:
    headers = {"OpenStack-API-Version": "placement 9.99", "Accept": "image/png"}
    assert get(fresh, path, headers=headers).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_probe_responds_to_head_without_a_body(fresh: Flask, path: str) -> None:
    response = fresh.test_client().head(path)
    assert (response.status_code, response.data) == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", PATHS)
def test_probe_supports_only_get_and_head(fresh: Flask, method: str, path: str) -> None:
    response = fresh.test_client().open(path, method=method)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", PATHS)
def test_probe_is_not_a_route_of_the_api(fresh: Flask, path: str) -> None:
    assert path not in {rule.rule for rule in fresh.url_map.iter_rules()}


@pytest.mark.parametrize("path", ["/healthz/", "/readyz/x", "/metric", "//healthz", "/Healthz"])
def test_similar_paths_are_unknown_to_the_api(fresh: Flask, path: str) -> None:
    as_sent = {"PATH_INFO": path}
    assert get(fresh, "/", environ_overrides=as_sent).status_code == 401
    assert send(fresh, "GET", "/", environ_overrides=as_sent).status_code == 404


def test_path_of_disabled_metrics_is_unknown_to_the_api(new_app: NewApp, database_url: str) -> None:
    app = new_app(metrics=False)
    assert get(app, "/metrics").status_code == 401
    assert send(app, "GET", "/metrics").status_code == 404
    assert get(app, "/readyz").status_code == 200


def test_service_is_alive_without_a_database_but_not_ready(new_app: NewApp, server_url: str) -> None:
    missing = make_url(server_url).set(database=f"placement_test_{uuid4().hex}")
    app = new_app(database_url=missing.render_as_string(hide_password=False))
    assert get(app, "/healthz").status_code == 200
    response = get(app, "/readyz")
    assert response.status_code == 503
    assert response.text == "The database refuses connections; the log of the service has the reason.\n"
    assert "placement_requests_total" in get(app, "/metrics").text


@pytest.fixture
def upgraded(new_app: NewApp, new_database: Callable[[], str]) -> Iterator[tuple[Flask, Engine]]:
    """A service, and an engine for its database, whose schema is up to date."""
    url = new_database()
    engine = connect(url)
    schema.upgrade(engine)
    yield new_app(database_url=url), engine
    engine.dispose()


@contextmanager
def locked(engine: Engine, table: str) -> Iterator[None]:
    """Let all reads of a table wait, for as long as the lock timeout of the service."""
    with engine.begin() as connection:
        connection.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        yield


def test_service_whose_database_does_not_respond_is_not_ready(
    upgraded: tuple[Flask, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, engine = upgraded
    with locked(engine, "alembic_version"), monkeypatch.context() as patch:
        patch.setattr(time_limit, "RESPONSE_SECONDS", 1.0)
        response = get(app, "/readyz")
    assert (response.status_code, response.text) == (503, "The database has not responded yet.\n")
    assert get(app, "/readyz").status_code == 200


def test_metrics_omit_only_what_the_database_does_not_return(upgraded: tuple[Flask, Engine]) -> None:
    app, engine = upgraded
    with locked(engine, "inventories"):
        shown = get(app, "/metrics").text
    assert "placement_synchronous_standbys_required 0.0" in shown
    assert "# TYPE placement_inventory_capacity gauge" in shown
    assert "placement_inventory_capacity{" not in shown


def test_service_is_ready_when_its_schema_is_up_to_date(
    new_app: NewApp, new_database: Callable[[], str]
) -> None:
    url = new_database()
    app = new_app(database_url=url)
    response = get(app, "/readyz")
    assert response.status_code == 503
    assert "run `placement-svc db upgrade`" in response.text
    engine = connect(url)
    schema.upgrade(engine)
    engine.dispose()
    assert get(app, "/readyz").status_code == 200


def test_downgraded_schema_is_reported(upgraded: tuple[Flask, Engine]) -> None:
    app, engine = upgraded
    assert get(app, "/readyz").status_code == 200
    schema.downgrade(engine, "base")
    response = get(app, "/readyz")
    assert response.status_code == 503
    assert response.text == (
        f"The schema is at revision base of {revisions.newest()}: run `placement-svc db upgrade`.\n"
    )


def test_several_revisions_are_reported(upgraded: tuple[Flask, Engine]) -> None:
    app, engine = upgraded
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO alembic_version VALUES ('9999')"))
    response = get(app, "/readyz")
    assert response.status_code == 503
    assert response.text.startswith(
        f"The table alembic_version has the revisions {revisions.newest()}, 9999, and must have one:"
    )


def test_schema_of_a_newer_release_is_ready(upgraded: tuple[Flask, Engine]) -> None:
    app, engine = upgraded
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert get(app, "/readyz").status_code == 200


def test_stopping_service_is_not_ready(fresh: Flask) -> None:
    response = get(fresh, "/readyz", environ_base={STOPPING: True})
    assert (response.status_code, response.text) == (503, "The service is stopping.\n")
    assert get(fresh, "/healthz", environ_base={STOPPING: True}).status_code == 200


def test_requests_are_counted_by_route_not_by_path(fresh: Flask) -> None:
    for _ in range(3):
        send(fresh, "GET", f"/resource_providers/{uuid4()}", version="1.20")
    route = {"method": "GET", "route": "/resource_providers/<uuid>"}
    assert sample(fresh, "placement_requests_total", **route, status="404", microversion="1.20") == 3
    assert sample(fresh, "placement_request_duration_seconds_count", **route, status="404") == 3
    assert sample(fresh, "placement_request_sql_statements_count", **route) == 3


@pytest.mark.parametrize(
    ("method", "path", "status", "counted_as"),
    [
        ("GET", "/nothing", "404", "GET"),
        ("GET", "/nothing/else", "404", "GET"),
        ("POST", "/traits", "405", "POST"),
        ("BREW", "/", "405", "other"),
    ],
)
def test_unknown_paths_and_methods_are_counted_as_unknown(
    fresh: Flask, method: str, path: str, status: str, counted_as: str
) -> None:
    assert str(send(fresh, method, path).status_code) == status
    labels = {"method": counted_as, "route": "unknown", "status": status, "microversion": "1.39"}
    assert sample(fresh, "placement_requests_total", **labels) == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, "401"), ({"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.999"}, "406")],
)
def test_requests_without_microversion_are_counted_as_none(
    fresh: Flask, headers: dict[str, str], status: str
) -> None:
    assert get(fresh, "/traits", headers=headers).status_code == int(status)
    labels = {"method": "GET", "route": "/traits", "status": status, "microversion": "none"}
    assert sample(fresh, "placement_requests_total", **labels) == 1


def test_probes_are_not_counted_as_requests(fresh: Flask) -> None:
    for path in PATHS:
        get(fresh, path)
    assert "placement_requests_total{" not in get(fresh, "/metrics").text


def test_statements_of_a_request_are_counted(fresh: Flask) -> None:
    send(fresh, "GET", "/traits")
    before = sample(fresh, "placement_request_sql_statements_sum", method="GET", route="/traits")
    send(fresh, "GET", "/traits")
    labels = {"method": "GET", "route": "/traits"}
    assert sample(fresh, "placement_request_sql_statements_sum", **labels) == (before or 0) + 1
    assert sample(fresh, "placement_request_sql_duration_seconds_sum", **labels)


def test_connections_are_counted(fresh: Flask) -> None:
    assert sample(fresh, "placement_pool_size_connections") == Settings.pool_size
    send(fresh, "GET", "/traits")
    assert sample(fresh, "placement_pool_checked_out_connections") == 0
    assert sample(fresh, "placement_pool_wait_seconds_count") == 1
    with fresh.extensions["database"].engine.connect():
        assert sample(fresh, "placement_pool_checked_out_connections") == 1
    assert sample(fresh, "placement_pool_checked_out_connections") == 0


@pytest.fixture
def host(fresh: Flask) -> str:
    """A provider with 8 VCPU, of which 2 are reserved."""
    uuid = str(uuid4())
    send(fresh, "POST", "/resource_providers", {"name": "host", "uuid": uuid})
    inventory = {"total": 8, "reserved": 2, "allocation_ratio": 2.0}
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": inventory}}
    assert send(fresh, "PUT", f"/resource_providers/{uuid}/inventories", body).status_code == 200
    return uuid


def claim(host: str, amount: int = 1, **changed: Any) -> dict[str, Any]:
    return {
        "allocations": {host: {"resources": {"VCPU": amount}}},
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
        "project_id": "project",
        "user_id": "user",
    } | changed


@pytest.mark.parametrize(
    ("changed", "status", "outcome"),
    [
        ({}, 204, "won"),
        ({"amount": 13}, 409, "over_capacity"),
        ({"consumer_generation": 7}, 409, "conflict"),
        ({"host": str(uuid4())}, 400, None),
    ],
)
def test_claims_are_counted_by_outcome(
    fresh: Flask, host: str, changed: dict[str, Any], status: int, outcome: str | None
) -> None:
    body = claim(**({"host": host} | changed))
    assert send(fresh, "PUT", f"/allocations/{uuid4()}", body).status_code == status
    assert send(fresh, "POST", "/allocations", {str(uuid4()): body}).status_code == status
    assert claims_by_outcome(fresh) == ({outcome: 2.0} if outcome else {})


def test_a_request_that_only_releases_is_no_claim(fresh: Flask, host: str) -> None:
    consumer = str(uuid4())
    assert send(fresh, "PUT", f"/allocations/{consumer}", claim(host)).status_code == 204
    release = claim(host) | {"allocations": {}, "consumer_generation": 1}
    assert send(fresh, "PUT", f"/allocations/{consumer}", release).status_code == 204
    assert send(fresh, "POST", "/allocations", {consumer: claim(host)}).status_code == 204
    assert send(fresh, "POST", "/allocations", {consumer: release}).status_code == 204
    assert claims_by_outcome(fresh) == {"won": 2.0}


def claims_by_outcome(app: Flask) -> dict[str, float]:
    """Return how many claims have been counted, by those outcomes that there were."""
    outcomes = ("won", "over_capacity", "no_candidates", "conflict", "refused")
    counted = {name: sample(app, "placement_claims_total", outcome=name) for name in outcomes}
    assert None not in counted.values()
    return {name: count for name, count in counted.items() if count}


def test_refusals_of_each_policy_begin_at_zero(fresh: Flask) -> None:
    for policy in POLICIES:
        assert sample(fresh, "placement_group_refusals_total", policy=policy) == 0


@pytest.mark.parametrize(
    ("amount", "status", "outcome"), [(1, 200, "won"), (13, 409, "no_candidates"), (0, 400, None)]
)
def test_searches_with_claims_are_counted_by_outcome(
    fresh: Flask, host: str, amount: int, status: int, outcome: str | None
) -> None:
    consumer = claim(host) | {"uuid": str(uuid4())}
    del consumer["allocations"]
    body = {"request": f"resources=VCPU:{amount}", "consumers": [consumer]}
    assert send(fresh, "POST", "/claims", body | {"dry_run": True}).status_code == status
    assert claims_by_outcome(fresh) == {}
    assert send(fresh, "POST", "/claims", body).status_code == status
    assert claims_by_outcome(fresh) == ({outcome: 1.0} if outcome else {})


def test_claim_without_inventory_is_counted_as_refused(fresh: Flask, host: str) -> None:
    body = claim(host)
    body["allocations"][host]["resources"] = {"DISK_GB": 1}
    assert send(fresh, "PUT", f"/allocations/{uuid4()}", body).status_code == 409
    assert sample(fresh, "placement_claims_total", outcome="refused") == 1


FAIL_ONCE = """
    CREATE SEQUENCE attempts;
    CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('attempts') = 1 THEN
            RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure';
        END IF;
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER fail_once AFTER INSERT ON allocations EXECUTE FUNCTION fail_once();
"""


@pytest.fixture
def serialization_failure(engine: Engine) -> Iterator[None]:
    """The first insert of an allocation fails with a serialization failure."""
    with engine.begin() as connection:
        connection.execute(text(FAIL_ONCE))
    yield
    with engine.begin() as connection:
        connection.execute(text("DROP FUNCTION fail_once CASCADE; DROP SEQUENCE attempts"))


@pytest.mark.usefixtures("serialization_failure")
def test_retried_transaction_is_counted(fresh: Flask, host: str) -> None:
    assert send(fresh, "PUT", f"/allocations/{uuid4()}", claim(host)).status_code == 204
    route = {"method": "PUT", "route": "/allocations/<consumer_uuid>"}
    assert sample(fresh, "placement_transaction_retries_total", **route) == 1
    assert sample(fresh, "placement_claims_total", outcome="won") == 1


def test_candidates_and_trees_are_counted(fresh: Flask, host: str) -> None:
    for amount, found in ((1, 1), (100, 0)):
        response = send(fresh, "GET", f"/allocation_candidates?resources=VCPU:{amount}").json
        assert len(response["allocation_requests"]) == found
    assert sample(fresh, "placement_candidates_count") == 2
    assert sample(fresh, "placement_candidates_sum") == 1
    assert sample(fresh, "placement_candidates_trees_examined_count") == 2
    assert sample(fresh, "placement_candidates_trees_examined_sum") == 1


def test_inventories_are_summed_by_resource_class(
    fresh: Flask, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def totals() -> list[float | None]:
        kinds = ("capacity", "used", "reserved")
        return [sample(fresh, f"placement_inventory_{kind}", resource_class="VCPU") for kind in kinds]

    monkeypatch.setattr(metrics_module, "TOTALS_SECONDS", 0.0)
    assert totals() == [12, 0, 2]
    assert send(fresh, "PUT", f"/allocations/{uuid4()}", claim(host, 5)).status_code == 204
    assert totals() == [12, 5, 2]
    monkeypatch.setattr(metrics_module, "TOTALS_SECONDS", 3600.0)
    assert totals() == [12, 5, 2]
    assert send(fresh, "PUT", f"/allocations/{uuid4()}", claim(host, 5)).status_code == 204
    assert totals() == [12, 5, 2]


def test_inventories_are_summed_by_one_statement(fresh: Flask, host: str, engine: Engine) -> None:
    with sent_statements(fresh.extensions["database"].engine) as statements:
        get(fresh, "/metrics")
    assert sum("inventories" in statement.text for statement in statements) == 1
