"""The checks that every request passes before routing, in their order (`docs/spec/http.md 1`)."""

from http import HTTPStatus

from flask import Flask, Response, g, request
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound

from placement_svc.domain.version_header import EXTENSIONS_HEADER
from placement_svc.http import auth, microversion, request_id
from placement_svc.http.cors import Cors
from placement_svc.http.hosts import AllowedHosts
from placement_svc.http.routes import MethodRule, Routes

_STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


def _check_body_headers() -> None:
    length = request.headers.get("Content-Length", "")
    if length and not length.isdecimal():
        raise BadRequest("content-length header must be an integer")
    if length and int(length) > 0 and not request.headers.get("Content-Type"):
        raise BadRequest("content-type header required when content-length > 0")


def _check_path() -> None:
    # Werkzeug merges leading slashes, and PostgreSQL cannot store a text with a NUL.
    if request.environ["PATH_INFO"].startswith("//") or "\x00" in request.path:
        raise NotFound()


def _check_method(routes: Routes, path: str | None) -> None:
    # At the mount point without a slash, Werkzeug does not report other methods as not allowed.
    if not request.environ["PATH_INFO"] and request.url_rule is None:
        raise MethodNotAllowed(["GET"])
    if path is None:
        return
    with_extensions = routes.are_all_extensions(path) or microversion.allows_extensions()
    allowed = routes.methods(path, with_extensions=with_extensions)
    method = request.environ["REQUEST_METHOD"]
    if method in allowed:
        return
    if method in routes.methods(path, with_extensions=True):
        raise MethodNotAllowed(allowed, f"It is an extension: send the header {EXTENSIONS_HEADER}.")
    raise MethodNotAllowed(allowed)


def _set_version_headers(response: Response) -> Response:
    if microversion.current() is not None:
        response.headers["openstack-api-version"] = g.version_header
        response.headers["vary"] = "openstack-api-version"
    return response


def _use_standard_reason(response: Response) -> Response:
    """Replace the reason of Werkzeug, which is in capitals, as in `404 NOT FOUND`; clients show it."""
    if response.status_code != HTTPStatus.OK and (line := _STATUS_LINES.get(response.status_code)):
        response.status = line
    return response


def _drop_content_type(response: Response) -> Response:
    """Remove `Content-Type` from a response without content."""
    if response.status_code in (201, 204) and not response.content_length:
        response.headers.pop("Content-Type", None)
    return response


def install(
    app: Flask, strategy: auth.AuthStrategy, *, hosts: AllowedHosts | None, cors: Cors | None
) -> None:
    """Register the checks that all requests to `app` share.

    With `hosts`, requests for other hosts are refused. With `cors`, pages of other origins may call the API,
    and an OPTIONS request skips all other checks.
    """
    app.url_rule_class = MethodRule  # type: ignore[assignment]
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    routes = Routes(app)

    @app.before_request
    def check() -> Response | None:
        request_id.assign()
        if hosts:
            hosts.check(request.environ)
        if cors and request.method == "OPTIONS":
            return cors.preflight(request)
        auth.authenticate(strategy)
        path = routes.current_path()
        microversion.negotiate_request(is_extension_path=routes.are_all_extensions(path))
        _check_body_headers()
        _check_path()
        _check_method(routes, path)
        return None

    @app.after_request
    def set_headers(response: Response) -> Response:
        _set_version_headers(_drop_content_type(_use_standard_reason(response)))
        if cors and request.method != "OPTIONS":
            cors.add_headers(request, response)
        return request_id.set_header(response)
