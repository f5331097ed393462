"""The application factory."""

from flask import Flask

from placement_svc import config
from placement_svc.api import BLUEPRINTS
from placement_svc.db.engine import Database, connect
from placement_svc.domain.errors import Unavailable
from placement_svc.http import auth, errors, pipeline
from placement_svc.http.json import OrjsonProvider

MAX_BODY = 64 * 1024 * 1024
"""Bytes of the largest body that is read: a reshape of thousands of providers fits."""


class UnknownDatabase(Exception):
    """No database was named; only `placement-svc serve` and `demo` start one of their own."""


def create_app(settings: config.Settings | None = None) -> Flask:
    """Return the WSGI application; without `settings` those of the environment apply.

    The database need not be there yet: until it is, requests are answered with 503.
    """
    settings = settings or config.from_environ()
    if settings.database_url is None:
        raise UnknownDatabase("PLACEMENT_DATABASE_URL is not set")
    app = Flask("placement_svc", static_folder=None)
    app.json = OrjsonProvider(app)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    database = Database(connect(settings.database_url, settings.pool_size))
    app.extensions["settings"] = settings
    app.extensions["database"] = database
    pipeline.install(app, auth.STRATEGIES[settings.auth])
    errors.install(app)
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    try:
        database.prepare()
    except Unavailable as problem:
        app.logger.warning("Starting without a database: %s", problem)
    return app
