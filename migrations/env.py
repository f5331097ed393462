"""Run the migrations on the database that `placement_svc.db.schema` hands over."""

from alembic import context

from placement_svc.db.tables import metadata


def run() -> None:
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


run()
