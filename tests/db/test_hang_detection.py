"""The connections that the watchdog of hanging servers knows."""

import gc

from sqlalchemy import make_url, text

from placement_svc.db.engine import connect
from tests.support.service import wait_until


def test_connections_of_an_abandoned_pool_are_closed(database_url: str) -> None:
    url = make_url(database_url).update_query_dict({"application_name": "abandoned"})
    engine = connect(url.render_as_string(hide_password=False))
    other = connect(database_url)
    count = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'abandoned'")
    with engine.connect() as first, engine.connect() as second:
        assert first.scalar(count) == second.scalar(count) == 2

    # The pool is replaced, and does not close the connections that are in use.
    engine.dispose(close=False)

    def are_closed() -> bool:
        # A collection does nothing if it begins while another thread has one under way.
        gc.collect()
        # A transaction sees the sessions as they were when it first asked for them.
        with other.connect() as connection:
            return connection.scalar(count) == 0

    wait_until(are_closed)
    other.dispose()
