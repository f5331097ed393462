"""The checks that every request passes before routing, in their order (`docs/spec/http.md 1`)."""

from flask import Flask, Response, g, request
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound
from werkzeug.routing import Rule

from placement_svc.http import auth, microversion, request_id
from placement_svc.http.cors import Cors
from placement_svc.http.hosts import AllowedHosts


class MethodRule(Rule):
    """A route that supports only the methods it names: GET does not imply HEAD."""

    def __init__(self, string: str, *, methods: list[str] | None = None, **options: object) -> None:
        super().__init__(string, methods=methods, **options)  # type: ignore[arg-type]
        if self.methods:
            self.methods.discard("HEAD")


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


def _methods_in_order(app: Flask, allowed: list[str]) -> list[str]:
    """Return the methods of the current path in the order in which its routes were declared."""
    adapter = app.create_url_adapter(request)
    assert adapter is not None
    path_rule, _ = adapter.match(method=allowed[0], return_rule=True)
    declared = (rule for rule in app.url_map.iter_rules() if rule.rule == path_rule.rule)
    return [method for rule in declared for method in sorted(rule.methods or ())]


def _check_method(app: Flask) -> None:
    # At the mount point without a slash, Werkzeug does not report other methods as not allowed.
    if not request.environ["PATH_INFO"] and request.url_rule is None:
        raise MethodNotAllowed(["GET"])
    error = request.routing_exception
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        raise MethodNotAllowed(_methods_in_order(app, list(error.valid_methods)))
    if request.environ["REQUEST_METHOD"] != request.method and request.url_rule is not None:
        raise MethodNotAllowed(_methods_in_order(app, [request.method]))


def _set_version_headers(response: Response) -> Response:
    version = microversion.current()
    if version is not None:
        response.headers["openstack-api-version"] = f"placement {version}"
        response.headers["vary"] = "openstack-api-version"
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

    @app.before_request
    def check() -> Response | None:
        request_id.assign()
        if hosts:
            hosts.check(request.environ)
        if cors and request.method == "OPTIONS":
            return cors.preflight(request)
        auth.authenticate(strategy)
        microversion.negotiate_request()
        _check_body_headers()
        _check_path()
        _check_method(app)
        return None

    @app.after_request
    def set_headers(response: Response) -> Response:
        assert g.request_id
        _set_version_headers(_drop_content_type(response))
        if cors and request.method != "OPTIONS":
            cors.add_headers(request, response)
        return request_id.set_header(response)
