"""Keystone stops responding: requests with cached tokens go on."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import identity
from tests.support.identity import PASSWORD, USERNAME, Identity
from tests.support.service import serving, wait_until

THREADS = 2

SETTINGS = f"""
[keystone_authtoken]
auth_type = password
auth_url = {{url}}
username = {USERNAME}
password = {PASSWORD}
user_domain_id = default
project_name = services
project_domain_id = default
http_connect_timeout = 60
"""


def test_requests_with_cached_tokens_go_on_while_keystone_is_frozen(
    database_url: str, tmp_path: Path
) -> None:
    keystone = Identity()
    names = [f"new-{number}" for number in range(4 * THREADS)]
    keystone.tokens = {name: identity.token("service") for name in ["cached", *names]}
    with identity.serving(keystone):
        file = tmp_path / "keystone.conf"
        file.write_text(SETTINGS.format(url=keystone.url))
        settings = {"database_url": database_url, "auth": "keystone", "keystone_file": file}
        with serving(1, THREADS, **settings) as service, ThreadPoolExecutor(len(names)) as threads:

            def ask(token: str) -> int:
                return service.get("/resource_providers", {"X-Auth-Token": token})[0]

            assert ask("cached") == 200
            keystone.is_running.clear()
            try:
                waiting = [threads.submit(ask, name) for name in names]
                wait_until(lambda: len(keystone.asked) == 1 + len(names))
                assert ask("cached") == 200
                assert not any(each.done() for each in waiting)
            finally:
                keystone.is_running.set()
            assert [each.result() for each in waiting] == [200] * len(names)
