"""The application factory."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any
from wsgiref.types import WSGIApplication

from flask import Flask, request
from flask.typing import ResponseReturnValue
from oslo_policy.policy import Enforcer
from werkzeug.datastructures import ImmutableDict

from placement_svc import config
from placement_svc.api import BLUEPRINTS
from placement_svc.api.context import install_deadline, request_deadline
from placement_svc.configuration_files import ConfigurationFiles
from placement_svc.console import application as console
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.connections.primary_watch import PrimaryWatch
from placement_svc.db.connections.standbys import Reader, Standby, StandbyReads
from placement_svc.db.connections.urls import each_host
from placement_svc.db.placing.service import PlacingService
from placement_svc.domain.errors import TooManyLongResponses, Unavailable
from placement_svc.http import cors, errors, pipeline, proxy
from placement_svc.http.auth import AuthStrategy
from placement_svc.http.documentation import DocumentationMiddleware
from placement_svc.http.environ import READ_METHODS
from placement_svc.http.hosts import AllowedHosts
from placement_svc.http.json import OrjsonProvider, reserved_stream
from placement_svc.http.policy import load
from placement_svc.http.probes import ProbesMiddleware
from placement_svc.observability import access_log
from placement_svc.observability.access_log import Report
from placement_svc.observability.empty_answers import EmptyAnswerRecorder
from placement_svc.observability.metrics import Metrics, shared_directory
from placement_svc.observability.watched_aggregates import WatchedAggregates
from placement_svc.observability.watched_requests import WatchedRequests
from placement_svc.openapi.document import describe
from placement_svc.openapi.registry import check_endpoints
from placement_svc.provisioning.database import with_database
from placement_svc.readiness import Readiness


class _Application(Flask):
    """Flask without its check for coroutine functions, which runs at every call of a view or hook.

    The view of a read runs again if it has become long while too many others were, or if its response is long
    while too many long responses are being sent.
    """

    json_provider_class = OrjsonProvider
    # Routes do not depend on the host. Without this, Werkzeug refuses some hosts without a reason.
    default_config = ImmutableDict({**Flask.default_config, "SERVER_NAME": "localhost"})

    def dispatch_request(self) -> ResponseReturnValue:
        """Return the response of the view for the current request."""
        if request.method not in READ_METHODS:
            return super().dispatch_request()
        deadline = request_deadline()
        run = partial(deadline.run, super().dispatch_request)
        with suppress(TooManyLongResponses):
            return run()
        # The wait begins after that block, in which the error still refers to what was read.
        with reserved_stream(deadline):
            return run()

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function unchanged: none of this application is a coroutine function."""
        return func


def create_app(settings: config.Settings | None = None, files: ConfigurationFiles | None = None) -> Flask:
    """Return the WSGI application; without `settings`, read them from the environment.

    `files` are the files that the settings name, if they have been read already.

    A database that the settings name may still be down: until it is up, responses have the status 503.
    If they name none, the embedded database runs as long as this process. Raises `SetupError` if
    something else that the settings name cannot be used, and `DeclarationError` if the declarations of
    an endpoint are incomplete.
    """
    settings = settings or config.from_environ()
    files = files or ConfigurationFiles(settings)
    settings = with_database(settings)
    app = _Application("placement_svc", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body
    _add_extensions(app, settings, files)
    metrics = _metrics(app, settings, files) if settings.metrics else None
    reports = _reports(app, metrics)
    record = access_log.install(app, settings.slow_request, reports)
    install_deadline(app)
    hosts = _allowed_hosts(settings)
    pipeline.install(app, files.strategy, hosts=hosts, cors=_cors(settings))
    errors.install(app)
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    check_endpoints(app)
    app.wsgi_app = DocumentationMiddleware(  # type: ignore[method-assign]
        app.wsgi_app, cache(partial(describe, app)), record
    )
    if settings.console:
        pages = _console(app, settings, files.strategy, reports, hosts)
        app.wsgi_app = console.ConsoleMiddleware(  # type: ignore[method-assign]
            app.wsgi_app, pages.wsgi_app
        )
    _add_middleware(app, settings, metrics, hosts)
    try:
        app.extensions["database"].prepare()
    except Unavailable as error:
        app.logger.warning("Starting without a database: %s", error)
    return app


def _add_extensions(app: Flask, settings: config.Settings, files: ConfigurationFiles) -> None:
    """Add to `app` what its views use: the database, the services that use it, and contents of the files."""
    database = _database(settings)
    standby_reads = StandbyReads(database, _standbys(settings, PrimaryWatch(database.engine)))
    claim_service = ClaimService(database)
    app.extensions["settings"] = settings
    app.extensions["database"] = database
    app.extensions["standby_reads"] = standby_reads
    app.extensions["claim_service"] = claim_service
    app.extensions["placing_service"] = PlacingService(database, claim_service)
    app.extensions["policy"] = files.policy
    app.extensions["watched_requests"] = _watched_requests(settings, standby_reads, files)
    if settings.empty_answers:
        app.extensions["empty_answers"] = EmptyAnswerRecorder(database, settings.empty_answers)


def _metrics(app: Flask, settings: config.Settings, files: ConfigurationFiles) -> Metrics:
    """Return the metrics of `app`, which has its extensions already."""
    standby_reads = app.extensions["standby_reads"]
    watched = (app.extensions["watched_requests"], _watched_aggregates(settings, standby_reads, files))
    collectors = [collector for collector in watched if collector]
    return Metrics(app.extensions["database"], standby_reads, collectors)


def _reports(app: Flask, metrics: Metrics | None) -> list[Report]:
    """Return the functions that are called for each completed request."""
    reports: list[Report] = [metrics.count] if metrics else []
    if "empty_answers" in app.extensions:
        reports.append(app.extensions["empty_answers"].record)
    return reports


def _console(
    app: Flask,
    settings: config.Settings,
    strategy: AuthStrategy,
    reports: Sequence[Report],
    hosts: AllowedHosts | None,
) -> Flask:
    """Return the application of the console, on the database and the policy of `app`."""
    pages = _Application(console.__package__, static_url_path=f"{console.PATH}/static")
    pages.extensions.update(app.extensions)
    access_log.install(pages, settings.slow_request, reports)
    install_deadline(pages)
    console.install(pages, strategy, hosts=hosts)
    return pages


def _database(settings: config.Settings) -> Database:
    assert settings.database_url is not None
    return Database(
        connect(
            settings.database_url,
            settings.pool_size,
            settings.lock_timeout,
            settings.statement_timeout,
            prepares_statements=settings.prepared_statements,
        )
    )


def _standbys(settings: config.Settings, primary: PrimaryWatch) -> list[Standby]:
    """Return the standbys that the settings name."""
    return [
        Standby(
            url,
            settings.read_max_lag,
            primary,
            pool_size=settings.pool_size,
            statement_timeout=settings.statement_timeout,
            prepares_statements=settings.prepared_statements,
        )
        for url in (each_host(settings.read_url) if settings.read_url else ())
    ]


def _add_middleware(
    app: Flask, settings: config.Settings, metrics: Metrics | None, hosts: AllowedHosts | None
) -> None:
    """Wrap the WSGI application of `app`; the last middleware added sees a request first."""
    wsgi_app: WSGIApplication = app.wsgi_app
    if settings.proxy_headers:
        wsgi_app = proxy.ProxyHeadersMiddleware(wsgi_app)
    app.wsgi_app = ProbesMiddleware(  # type: ignore[method-assign]
        wsgi_app,
        readiness=Readiness(
            app.extensions["database"],
            app.extensions["standby_reads"].standbys,
            requires_sync=settings.require_sync,
        ).state,
        metrics=metrics.response if metrics else None,
        metrics_hosts=replace(hosts, any_address=True) if hosts else None,
    )


def _watched_requests(
    settings: config.Settings, reader: Reader, files: ConfigurationFiles
) -> WatchedRequests | None:
    if files.watched_requests is None:
        return None
    return WatchedRequests(
        reader,
        files.watched_requests,
        shared_directory(),
        seconds=settings.request_deadline,
        memory=settings.max_search_memory,
    )


def _watched_aggregates(
    settings: config.Settings, reader: Reader, files: ConfigurationFiles
) -> WatchedAggregates | None:
    if files.watched_aggregates is None:
        return None
    return WatchedAggregates(
        reader, files.watched_aggregates, shared_directory(), seconds=settings.request_deadline
    )


def policy_enforcer() -> Enforcer:
    """Return the policy that the environment's settings select; the tools of oslo.policy call this."""
    settings = config.from_environ()
    return load(settings.policy_profile, settings.policy_file)


def _allowed_hosts(settings: config.Settings) -> AllowedHosts | None:
    """Return the allowed hosts, None if all are allowed."""
    if settings.auth != "noauth" and not settings.allowed_hosts:
        return None
    return AllowedHosts(settings.allowed_hosts, any_address=settings.allow_insecure)


def _cors(settings: config.Settings) -> cors.Cors | None:
    if not settings.cors_allowed_origins:
        return None
    return cors.Cors(settings.cors_allowed_origins, settings.cors_allowed_headers or cors.HEADERS)
