"""Run the migrations: on the connection that `placement_svc.db.schema` hands over, or, when alembic
itself is called, on the database that the settings name."""

from alembic import context
from sqlalchemy import Connection

from placement_svc.config import from_environ
from placement_svc.db.engine import connect
from placement_svc.db.tables import metadata
from placement_svc.provisioning.database import database_url


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    run(handed_over)
else:
    with database_url(from_environ()) as url, connect(url).begin() as own:
        run(own)
