"""The application factory."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from flask import Flask
from oslo_policy.policy import Enforcer

from placement_svc import config
from placement_svc.api import BLUEPRINTS
from placement_svc.db import schema
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.engine import Database, connect
from placement_svc.domain.errors import Unavailable
from placement_svc.http import cors, errors, pipeline, proxy
from placement_svc.http.auth import Strategy
from placement_svc.http.documentation import Documentation
from placement_svc.http.json import OrjsonProvider
from placement_svc.http.keystone import keystone
from placement_svc.http.noauth import NOAUTH
from placement_svc.http.policy import Policy, load
from placement_svc.http.probes import Probes
from placement_svc.http.tokens import tokens
from placement_svc.observability import access_log
from placement_svc.observability.metrics import Metrics
from placement_svc.openapi.document import describe
from placement_svc.provisioning.database import with_database


class _Application(Flask):
    """Flask, told that no function of ours is a coroutine; it would look at each of them, every time."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as it is."""
        return func


def create_app(settings: config.Settings | None = None) -> Flask:
    """Return the WSGI application; without `settings` those of the environment apply.

    A database that is named need not be there yet: until it is, requests are answered with 503. If
    none is named, the embedded one runs as long as this process. Raises `SetupError` if something else
    that the settings name cannot be used.
    """
    settings = settings or config.from_environ()
    strategy, policy = access(settings)
    settings = with_database(settings)
    assert settings.database_url is not None
    app = _Application("placement_svc", static_folder=None)
    app.json = OrjsonProvider(app)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body
    database = Database(
        connect(settings.database_url, settings.pool_size, settings.lock_timeout, settings.statement_timeout)
    )
    app.extensions["settings"] = settings
    app.extensions["database"] = database
    app.extensions["claim_service"] = ClaimService(database)
    app.extensions["policy"] = policy
    metrics = Metrics(database) if settings.metrics else None
    access_log.install(app, settings.slow_request, metrics.count if metrics else None)
    pipeline.install(app, strategy, _cors(settings))
    errors.install(app)
    app.wsgi_app = Documentation(app.wsgi_app, cache(partial(describe, app)))  # type: ignore[method-assign]
    if settings.proxy_headers:
        app.wsgi_app = proxy.BehindProxy(app.wsgi_app)  # type: ignore[method-assign]
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    problem = partial(_problem, database)
    app.wsgi_app = Probes(app.wsgi_app, problem, metrics.response if metrics else None)  # type: ignore[method-assign]
    try:
        database.prepare()
    except Unavailable as problem:
        app.logger.warning("Starting without a database: %s", problem)
    return app


def access(settings: config.Settings) -> tuple[Strategy, Policy]:
    """Return how callers become known, and what they may do then.

    Raises `SetupError` if something that the settings name for it cannot be used.
    """
    return _strategy(settings), Policy(settings.policy_profile, settings.policy_file)


def _strategy(settings: config.Settings) -> Strategy:
    if settings.auth == "keystone":
        return keystone(settings.keystone_file)
    if settings.auth == "token":
        assert settings.token_file is not None
        return tokens(settings.token_file)
    return NOAUTH


def policy_enforcer() -> Enforcer:
    """Return the policy that the settings of the environment mean, for the tools of oslo.policy."""
    settings = config.from_environ()
    return load(settings.policy_profile, settings.policy_file)


def _problem(database: Database) -> str | None:
    """Return why requests cannot be served from `database`, None if they can."""
    try:
        return schema.mismatch(database.read(schema.revision_of))
    except Unavailable as problem:
        return str(problem)


def _cors(settings: config.Settings) -> cors.Cors | None:
    if not settings.cors_allowed_origins:
        return None
    return cors.Cors(settings.cors_allowed_origins, settings.cors_allowed_headers or cors.HEADERS)
