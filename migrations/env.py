"""Run the migrations with Alembic.

`placement_svc.db.schema` passes its own connection. The `alembic` command has none: it gets a connection to
the database that the settings name.
"""

from alembic import context
from sqlalchemy import Connection

from placement_svc.config import from_environ
from placement_svc.db import revisions
from placement_svc.db.connections.engine import connect
from placement_svc.db.tables import log_metadata, metadata
from placement_svc.provisioning.database import database_url


def run(connection: Connection) -> None:
    revisions.check_upgradable(connection)
    context.configure(connection=connection, target_metadata=[metadata, log_metadata])
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with database_url(from_environ(), create=True) as url, connect(url).begin() as own:
        run(own)
