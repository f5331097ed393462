"""The order in which every request is checked before its path counts (`docs/spec/http.md 1`)."""

from flask import Flask, Response, g, request
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound
from werkzeug.routing import Rule

from placement_svc.http import auth, microversion, request_id
from placement_svc.http.cors import Cors


class MethodRule(Rule):
    """A route that answers the methods it names: HEAD is not implied by GET."""

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
    # Werkzeug folds leading slashes, and PostgreSQL has no text with a NUL in it.
    if request.environ["PATH_INFO"].startswith("//") or "\x00" in request.path:
        raise NotFound()


def _methods_in_order(app: Flask, allowed: list[str]) -> list[str]:
    """Return `allowed` in the order in which the routes of the present path were declared."""
    adapter = app.create_url_adapter(request)
    assert adapter is not None
    path_rule, _ = adapter.match(method=allowed[0], return_rule=True)
    declared = (rule for rule in app.url_map.iter_rules() if rule.rule == path_rule.rule)
    return [method for rule in declared for method in sorted(rule.methods or ())]


def _check_method(app: Flask) -> None:
    # Without its slash Werkzeug knows the mount point by no other method than its own.
    if not request.environ["PATH_INFO"] and request.url_rule is None:
        raise MethodNotAllowed(["GET"])
    refused = request.routing_exception
    if isinstance(refused, MethodNotAllowed) and refused.valid_methods:
        raise MethodNotAllowed(_methods_in_order(app, list(refused.valid_methods)))
    if request.environ["REQUEST_METHOD"] != request.method and request.url_rule is not None:
        raise MethodNotAllowed(_methods_in_order(app, [request.method]))


def _stamp_version(response: Response) -> Response:
    version = microversion.current()
    if version is not None:
        response.headers["openstack-api-version"] = f"placement {version}"
        response.headers["vary"] = "openstack-api-version"
    return response


def _drop_content_type(response: Response) -> Response:
    """Send no Content-Type where there is no content."""
    if response.status_code in (201, 204) and not response.content_length:
        response.headers.pop("Content-Type", None)
    return response


def install(app: Flask, strategy: auth.Strategy, cors: Cors | None) -> None:
    """Let every request to `app` pass the checks that all endpoints share, in their order.

    With `cors`, pages of other origins may call, and OPTIONS is answered before all else.
    """
    app.url_rule_class = MethodRule  # type: ignore[assignment]
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False

    @app.before_request
    def check() -> Response | None:
        request_id.start()
        if cors and request.method == "OPTIONS":
            return cors.preflight(request)
        auth.authenticate(strategy)
        microversion.negotiate_request()
        _check_body_headers()
        _check_path()
        _check_method(app)
        return None

    @app.after_request
    def stamp(response: Response) -> Response:
        assert g.request_id
        _stamp_version(_drop_content_type(response))
        if cors and request.method != "OPTIONS":
            cors.stamp(request, response)
        return request_id.stamp(response)
