"""The OpenAPI document and its HTML page; neither needs a token or has a microversion."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import flask_swagger_ui
from flask import Response
from werkzeug.utils import send_from_directory

from placement_svc.http.json import dumps

DOCUMENT = "/openapi.json"
PAGE = "/docs"
ICON = "/favicon.ico"
"""The path at which browsers look for the icon of a site."""

_FILES = Path(flask_swagger_ui.__file__).parent / "dist"
_ICON_FILE = "favicon-32x32.png"
_ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js", _ICON_FILE)
"""Files of `flask_swagger_ui` that the page loads."""

_HTML = """\
<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="UTF-8">
  <title>The Placement API</title>
  <link rel="stylesheet" href="docs/swagger-ui.css">
  <link rel="icon" href="docs/favicon-32x32.png">
</head>
<body>
  <div id="page"></div>
  <script src="docs/swagger-ui-bundle.js"></script>
  <script src="docs/start.js"></script>
</body>
</html>
"""
"""The page. Its URLs are relative, so that they work wherever the service is mounted."""

_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#page", validatorUrl: null});\n'
"""The script that starts the page. It is a file, so that the policy below can forbid inline scripts."""

_CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
"""The page loads nothing from other origins and runs no inline script; no other page may embed it.

The style sheet contains images (``data:``).
"""

_HEADERS = {"Content-Security-Policy": _CONTENT_SECURITY_POLICY, "X-Content-Type-Options": "nosniff"}
"""Headers of every response: a browser may also open the document or a file as a page."""


class DocumentationMiddleware:
    """A WSGI middleware that serves the OpenAPI document and its page, and passes other requests on.

    `describe` returns the OpenAPI document without `servers`. It is called for each request of the
    document, so it should cache. `record` gets the WSGI environment of each request that the middleware
    serves, its response before it is sent, and the time of `perf_counter` at which the request started.
    """

    def __init__(
        self,
        app: WSGIApplication,
        describe: Callable[[], Mapping[str, Any]],
        record: Callable[[WSGIEnvironment, Response, float], None],
    ) -> None:
        self.app = app
        self.describe = describe
        self.record = record
        self._handlers = {
            DOCUMENT: self._document,
            PAGE: self._page,
            f"{PAGE}/": self._redirect,
            ICON: self._icon,
            f"{PAGE}/start.js": self._start,
            **{f"{PAGE}/{name}": self._file for name in _ASSETS},
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a request, or pass it on."""
        started = perf_counter()
        handler = self._handlers.get(environ["PATH_INFO"])
        if handler is None:
            return self.app(environ, start_response)
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            response = Response(status=405, headers={"Allow": "GET, HEAD"})
        else:
            response = handler(environ)
        response.headers.update(_HEADERS)
        self.record(environ, response, started)
        return response(environ, start_response)

    def _document(self, environ: WSGIEnvironment) -> Response:
        servers = [{"url": environ.get("SCRIPT_NAME") or "/"}]
        return Response(dumps({**self.describe(), "servers": servers}), content_type="application/json")

    def _page(self, environ: WSGIEnvironment) -> Response:
        return Response(_HTML, content_type="text/html; charset=UTF-8")

    def _redirect(self, environ: WSGIEnvironment) -> Response:
        # The URLs of the page are relative, so it has one address. This one is relative for the same reason.
        return Response(status=308, headers={"Location": f"..{PAGE}"})

    def _icon(self, environ: WSGIEnvironment) -> Response:
        return self._send(_ICON_FILE, environ)

    def _start(self, environ: WSGIEnvironment) -> Response:
        return Response(_START, content_type="text/javascript; charset=UTF-8")

    def _file(self, environ: WSGIEnvironment) -> Response:
        return self._send(environ["PATH_INFO"].removeprefix(f"{PAGE}/"), environ)

    def _send(self, name: str, environ: WSGIEnvironment) -> Response:
        """Return a file of `flask_swagger_ui`."""
        return send_from_directory(_FILES, name, environ, response_class=Response)  # type: ignore[return-value]
