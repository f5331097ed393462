"""An upgrade from the previous release under load, and the way back: no client gets an error.

`tests/cluster/install` installs the previous release in an environment of its own.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from placement_svc.db import revisions
from placement_svc.db.connections.engine import connect
from tests.cluster.load import Load, add_hosts
from tests.cluster.nginx import EXCLUDED_SECONDS, instance, nginx
from tests.support.service import THIS_VERSION, free_port, program

pytestmark = pytest.mark.cluster

PREVIOUS = (str(Path(__file__).parents[2] / ".venv/previous/bin/placement-svc"),)
"""The command line of the previous release."""

PREVIOUS_REVISION = "0011"

CLIENTS = 4
HOSTS = [str(uuid4()) for _ in range(4)]
CAPACITY = 30
CLAIMS = 50
"""Claims that are granted between two steps."""


def upgrade_schema(database_url: str, command: Sequence[str] = THIS_VERSION) -> None:
    with program("db", "upgrade", command=command, database_url=database_url) as running:
        running.ended()


@pytest.mark.skipif(
    not Path(*PREVIOUS).exists(), reason="tests/cluster/install has not found the previous release"
)
def test_no_client_gets_an_error(new_database: Callable[[], str], directory: Path) -> None:
    url = new_database()
    upgrade_schema(url, PREVIOUS)
    engine = connect(url)
    assert revisions.current(engine) == PREVIOUS_REVISION
    ports = [free_port() for _ in range(4)]
    with ExitStack() as stack:
        old = [stack.enter_context(instance(url, port, PREVIOUS)) for port in ports[:2]]
        proxy = stack.enter_context(nginx(directory, ports))
        add_hosts(proxy.client(), HOSTS, CAPACITY)
        load = Load([proxy], HOSTS, CLIENTS)

        with load:
            load.wait_for_claims(CLAIMS)
            upgrade_schema(url)
            load.wait_for_claims(CLAIMS)
            new = [stack.enter_context(instance(url, port)) for port in ports[2:]]
            time.sleep(EXCLUDED_SECONDS)
            load.wait_for_claims(CLAIMS)
            for service in old:
                service.stop()
                load.wait_for_claims(CLAIMS)
            # The way back: the previous release on the newer schema.
            for port in ports[:2]:
                stack.enter_context(instance(url, port, PREVIOUS))
            time.sleep(EXCLUDED_SECONDS)
            for service in new:
                service.stop()
                load.wait_for_claims(CLAIMS)
        assert set(load.ledger.statuses) <= {200, 204, 409}, (load.ledger.statuses, load.ledger.unexpected)
        load.ledger.check(engine, CAPACITY)
    engine.dispose()
