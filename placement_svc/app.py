"""The application factory."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any
from wsgiref.types import WSGIApplication

from flask import Flask
from oslo_policy.policy import Enforcer

from placement_svc import config
from placement_svc.api import BLUEPRINTS
from placement_svc.api.context import install_deadline
from placement_svc.db import schema
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.engine import Database, connect
from placement_svc.domain.errors import Unavailable
from placement_svc.http import cors, errors, pipeline, proxy
from placement_svc.http.auth import AuthStrategy
from placement_svc.http.documentation import DocumentationMiddleware
from placement_svc.http.hosts import AllowedHosts
from placement_svc.http.json import OrjsonProvider
from placement_svc.http.keystone import keystone_strategy
from placement_svc.http.noauth import NOAUTH
from placement_svc.http.policy import Policy, load
from placement_svc.http.probes import ProbesMiddleware
from placement_svc.http.tokens import token_strategy
from placement_svc.observability import access_log
from placement_svc.observability.empty_answers import EmptyAnswerRecorder
from placement_svc.observability.metrics import Metrics
from placement_svc.openapi.document import describe
from placement_svc.openapi.registry import check_endpoints
from placement_svc.provisioning.database import with_database


class _Application(Flask):
    """Flask without its check for coroutine functions, which runs at every call of a view or hook."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function unchanged: none of this application is a coroutine function."""
        return func


def create_app(settings: config.Settings | None = None) -> Flask:
    """Return the WSGI application; without `settings`, read them from the environment.

    A database that the settings name may still be down: until it is up, responses have the status 503.
    If they name none, the embedded database runs as long as this process. Raises `SetupError` if
    something else that the settings name cannot be used, and `DeclarationError` if the declarations of
    an endpoint are incomplete.
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
    reports = [metrics.count] if metrics else []
    if settings.empty_answers:
        reports.append(EmptyAnswerRecorder(database, settings.empty_answers).record)
    record = access_log.install(app, settings.slow_request, reports)
    install_deadline(app)
    pipeline.install(app, strategy, hosts=_allowed_hosts(settings), cors=_cors(settings))
    errors.install(app)
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    check_endpoints(app)
    app.wsgi_app = DocumentationMiddleware(  # type: ignore[method-assign]
        app.wsgi_app, cache(partial(describe, app)), record
    )
    _add_middleware(app, settings, database, metrics)
    try:
        database.prepare()
    except Unavailable as error:
        app.logger.warning("Starting without a database: %s", error)
    return app


def _add_middleware(
    app: Flask, settings: config.Settings, database: Database, metrics: Metrics | None
) -> None:
    """Wrap the WSGI application of `app`; the last middleware added sees a request first."""
    wsgi_app: WSGIApplication = app.wsgi_app
    if settings.proxy_headers:
        wsgi_app = proxy.ProxyHeadersMiddleware(wsgi_app)
    hosts = _allowed_hosts(settings)
    app.wsgi_app = ProbesMiddleware(  # type: ignore[method-assign]
        wsgi_app,
        unready_reason=partial(_unready_reason, database),
        metrics=metrics.response if metrics else None,
        metrics_hosts=replace(hosts, any_address=True) if hosts else None,
    )


def access(settings: config.Settings) -> tuple[AuthStrategy, Policy]:
    """Return the authentication method and the policy that the settings select.

    Raises `SetupError` if a file that the settings name for them cannot be used.
    """
    return _strategy(settings), Policy(settings.policy_profile, settings.policy_file)


def _strategy(settings: config.Settings) -> AuthStrategy:
    if settings.auth == "keystone":
        return keystone_strategy(settings.keystone_file)
    if settings.auth == "token":
        assert settings.token_file is not None
        return token_strategy(settings.token_file)
    return NOAUTH


def policy_enforcer() -> Enforcer:
    """Return the policy that the environment's settings select; the tools of oslo.policy call this."""
    settings = config.from_environ()
    return load(settings.policy_profile, settings.policy_file)


def _unready_reason(database: Database) -> str | None:
    """Return why `database` cannot serve requests, None if it can."""
    try:
        return schema.mismatch(database.read(schema.revision_of))
    except Unavailable as error:
        return str(error)


def _allowed_hosts(settings: config.Settings) -> AllowedHosts | None:
    """Return the allowed hosts, None if all are allowed."""
    if settings.auth != "noauth" and not settings.allowed_hosts:
        return None
    return AllowedHosts(settings.allowed_hosts, any_address=settings.allow_insecure)


def _cors(settings: config.Settings) -> cors.Cors | None:
    if not settings.cors_allowed_origins:
        return None
    return cors.Cors(settings.cors_allowed_origins, settings.cors_allowed_headers or cors.HEADERS)
