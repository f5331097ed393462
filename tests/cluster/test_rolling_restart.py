"""A restart of every part in turn under load: no request fails.

The parts are two services behind nginx, etcd, and the nodes of the cluster; the primary restarts after a
planned switchover. The steps are those of docs/operations.md, "Restart all parts".
"""

import time
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from placement_svc.db.connections.engine import connect
from tests.cluster.load import Load, add_hosts
from tests.cluster.nginx import EXCLUDED_SECONDS, instance, nginx
from tests.cluster.patroni_cluster import Node, PatroniCluster
from tests.support.service import free_port

pytestmark = pytest.mark.cluster

CLIENTS = 4
HOSTS = [str(uuid4()) for _ in range(4)]
CAPACITY = 30
CLAIMS = 50
"""Claims that are granted between two steps."""


def restart(cluster: PatroniCluster, node: Node) -> None:
    node.stop()
    node.start()
    cluster.wait_until_complete()


def test_no_request_fails(cluster: PatroniCluster, directory: Path) -> None:
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        services = [stack.enter_context(instance(cluster.url, port)) for port in ports]
        proxy = stack.enter_context(nginx(directory, ports))
        add_hosts(proxy.client(), HOSTS, CAPACITY)
        load = Load([proxy], HOSTS, CLIENTS)

        with load:
            load.wait_for_claims(CLAIMS)
            for service, port in zip(services, ports, strict=True):
                service.stop()
                load.wait_for_claims(CLAIMS)
                stack.enter_context(instance(cluster.url, port))
                time.sleep(EXCLUDED_SECONDS)
                load.wait_for_claims(CLAIMS)
            cluster.etcd.stop()
            cluster.etcd.start()
            load.wait_for_claims(CLAIMS)
            primary = cluster.wait_for_leader()
            for node in cluster.nodes:
                if node is not primary:
                    restart(cluster, node)
                    load.wait_for_claims(CLAIMS)
            cluster.switch_over()
            cluster.wait_until_complete()
            load.wait_for_claims(CLAIMS)
            restart(cluster, primary)
            load.wait_for_claims(CLAIMS)
        assert load.ledger.failed == []
        engine = connect(cluster.url)
        load.ledger.check(engine, CAPACITY)
        engine.dispose()
