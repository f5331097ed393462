"""The application factory."""

from flask import Flask

from placement_svc import config
from placement_svc.api import BLUEPRINTS
from placement_svc.db.engine import Database, connect
from placement_svc.domain.errors import Unavailable
from placement_svc.http import auth, cors, errors, pipeline
from placement_svc.http.json import OrjsonProvider
from placement_svc.server import with_database

MAX_BODY = 16 * 1024 * 1024
"""Bytes of the largest body that is read: a reshape of thousands of providers fits."""


def create_app(settings: config.Settings | None = None) -> Flask:
    """Return the WSGI application; without `settings` those of the environment apply.

    A database that is named need not be there yet: until it is, requests are answered with 503. If
    none is named, the embedded one runs as long as this process.
    """
    settings = with_database(settings or config.from_environ())
    assert settings.database_url is not None
    app = Flask("placement_svc", static_folder=None)
    app.json = OrjsonProvider(app)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    database = Database(connect(settings.database_url, settings.pool_size, settings.lock_timeout))
    app.extensions["settings"] = settings
    app.extensions["database"] = database
    pipeline.install(app, auth.STRATEGIES[settings.auth], _cors(settings))
    errors.install(app)
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    try:
        database.prepare()
    except Unavailable as problem:
        app.logger.warning("Starting without a database: %s", problem)
    return app


def _cors(settings: config.Settings) -> cors.Cors | None:
    if not settings.cors_allowed_origins:
        return None
    return cors.Cors(settings.cors_allowed_origins, settings.cors_allowed_headers or cors.HEADERS)
