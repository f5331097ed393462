"""What tells about the API, beside the API: it needs no token and has no microversion."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import flask_swagger_ui
from flask import Response
from werkzeug.utils import send_from_directory

from placement_svc.http.json import dumps

DOCUMENT = "/openapi.json"
PAGE = "/docs"

_FILES = Path(flask_swagger_ui.__file__).parent / "dist"
_SHOWN = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
"""The files that the page shows, which come with the installation."""

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
  <script>
    SwaggerUIBundle({url: "openapi.json", dom_id: "#page", validatorUrl: null});
  </script>
</body>
</html>
"""
"""The page: all that it names is beside it, wherever the service is mounted."""

_ONLY_OURS = "default-src 'self' 'unsafe-inline' data:; frame-ancestors 'none'"
"""The browser loads nothing for the page from elsewhere, and shows it in no other page."""


class Documentation:
    """A WSGI application that answers with the description of the API, and leaves all else to another one.

    `describe` returns the OpenAPI document without the place where the API is served; it is called when
    the document is first asked for.
    """

    def __init__(self, app: WSGIApplication, describe: Callable[[], Mapping[str, Any]]) -> None:
        self.app = app
        self.describe = describe
        self._answers = {
            DOCUMENT: self._document,
            PAGE: self._page,
            **{f"{PAGE}/{name}": self._file for name in _SHOWN},
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, or let the other application do so."""
        answer = self._answers.get(environ["PATH_INFO"])
        if answer is None:
            return self.app(environ, start_response)
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return Response(status=405, headers={"Allow": "GET, HEAD"})(environ, start_response)
        return answer(environ)(environ, start_response)

    def _document(self, environ: WSGIEnvironment) -> Response:
        served = [{"url": environ.get("SCRIPT_NAME") or "/"}]
        return Response(dumps({**self.describe(), "servers": served}), content_type="application/json")

    def _page(self, environ: WSGIEnvironment) -> Response:
        return Response(
            _HTML, content_type="text/html; charset=UTF-8", headers={"Content-Security-Policy": _ONLY_OURS}
        )

    def _file(self, environ: WSGIEnvironment) -> Response:
        name = environ["PATH_INFO"].removeprefix(f"{PAGE}/")
        return send_from_directory(_FILES, name, environ, response_class=Response)  # type: ignore[return-value]
