"""The application of the console, which runs in the same process as that of the API."""

import secrets
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from flask import Flask, Response, g, request
from jinja2 import StrictUndefined
from werkzeug.exceptions import NotFound

from placement_svc.api.context import settings
from placement_svc.config import Settings
from placement_svc.console import errors, formatting, login
from placement_svc.console.sessions import Sessions
from placement_svc.console.views import BLUEPRINTS
from placement_svc.http import microversion, request_id
from placement_svc.http.accept import prefers_html
from placement_svc.http.auth import AuthStrategy
from placement_svc.http.hosts import AllowedHosts

PATH = "/console"

MAX_FORM = 64 * 1024
"""Bytes of the largest body: a pasted text, or a log-in."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The pages load nothing from other origins and have no inline script or style; no page may embed them."""

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_STATIC = "static"
"""The endpoint of the style sheet and the scripts."""

PUBLIC = frozenset({_STATIC, "landing.show", "login.show", "login.submit"})
"""The endpoints that need no token."""


class ConsoleMiddleware:
    """A WSGI middleware that passes requests for the console to `console`, and others to `app`.

    A browser that requests `/` gets a page of the console too. Browsers name no microversion.
    """

    def __init__(self, app: WSGIApplication, console: WSGIApplication) -> None:
        self.app = app
        self.console = console

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Pass a request on."""
        path = environ["PATH_INFO"]
        if path == PATH or path.startswith(f"{PATH}/") or _is_browser_at_root(environ):
            return self.console(environ, start_response)
        return self.app(environ, start_response)


def _is_browser_at_root(environ: WSGIEnvironment) -> bool:
    return (
        environ["PATH_INFO"] in ("", "/")
        and environ["REQUEST_METHOD"] == "GET"
        and "HTTP_OPENSTACK_API_VERSION" not in environ
        and prefers_html(environ.get("HTTP_ACCEPT"))
    )


def install(app: Flask, strategy: AuthStrategy, *, hosts: AllowedHosts | None) -> None:
    """Make `app` the console.

    `app` has the extensions of the API's application, a deadline for each request and the access log.
    """
    configured: Settings = app.extensions["settings"]
    app.config["MAX_CONTENT_LENGTH"] = MAX_FORM
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    # People type a slash at the end of an address.
    app.url_map.strict_slashes = False
    # Otherwise, Werkzeug would redirect to a URL that it makes itself.
    app.url_map.merge_slashes = False
    sessions = Sessions(configured.console_secret or secrets.token_urlsafe())
    app.extensions["sessions"] = sessions
    app.extensions["auth_strategy"] = strategy
    app.jinja_env.undefined = StrictUndefined
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    formatting.install(app)
    errors.install(app)

    @app.before_request
    def check() -> Response | None:
        request_id.assign()
        microversion.negotiate_request(is_extension_path=True)
        g.allows_stale = True
        if hosts:
            hosts.check(request.environ)
        if "\x00" in request.path:
            raise NotFound()
        if request.endpoint in PUBLIC:
            return None
        return login.authenticate(strategy, sessions, uses_noauth=settings().auth == "noauth")

    @app.after_request
    def set_headers(response: Response) -> Response:
        response.headers.update(HEADERS)
        if request.endpoint != _STATIC:
            # Pages show data that only this caller may read, and `/` depends on the Accept header.
            response.headers["Cache-Control"] = "no-store"
            response.headers["Vary"] = "Accept, Cookie"
        return request_id.set_header(response)

    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
