"""The check that every endpoint is declared completely.

An endpoint has four declarations: its route with `@endpoint` or `@public_endpoint` (`api`), its policy rule
(`http/rules.py`), its operation (`openapi/operations.py`) and, in `@endpoint`, the microversion that
introduced it. The application does not start while one of them is missing or has no counterpart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from flask import Flask

from placement_svc.domain.version_header import EXTENSION_VERSIONS
from placement_svc.http.endpoint import EndpointInfo, get_info
from placement_svc.http.microversion import CHANGES
from placement_svc.http.rules import ENDPOINT_RULES
from placement_svc.openapi.document import PATH_PARAMETERS
from placement_svc.openapi.operations import OPERATIONS

RULES_FILE = "placement_svc/http/rules.py"
OPERATIONS_FILE = "placement_svc/openapi/operations.py"
DOCUMENT_FILE = "placement_svc/openapi/document.py"
MICROVERSIONS_FILE = "placement_svc/http/microversion.py"
EXTENSION_VERSIONS_FILE = "placement_svc/domain/version_header.py"


class DeclarationError(Exception):
    """The declarations of endpoints are incomplete; the message has a line for each fault."""


@dataclass(frozen=True)
class _Route:
    """A route: its endpoint (blueprint and view), its method and path, and the file of its view."""

    endpoint: str
    request: str
    arguments: frozenset[str]
    file: str
    info: EndpointInfo | None

    def __str__(self) -> str:
        return f"The endpoint {self.endpoint} ({self.request})"


def check_endpoints(app: Flask) -> None:
    """Raise `DeclarationError` unless the declarations of all endpoints of `app` match."""
    routes = list(_routes(app))
    faults = [fault for route in routes for fault in _faults(route)]
    faults += [*_unused_rules(routes), *_unused_operations(routes)]
    if faults:
        raise DeclarationError("\n".join(faults))


def _routes(app: Flask) -> Iterator[_Route]:
    for rule in app.url_map.iter_rules():
        view = app.view_functions[rule.endpoint]
        for method in sorted(rule.methods or ()):
            yield _Route(
                endpoint=rule.endpoint,
                request=f"{method} {rule.rule.replace('<', '{').replace('>', '}')}",
                arguments=frozenset(rule.arguments),
                file=f"{view.__module__.replace('.', '/')}.py",
                info=get_info(view),
            )


def _faults(route: _Route) -> Iterator[str]:
    """Yield a sentence for each declaration that a route lacks."""
    if route.info is None:
        yield f"{route} is not declared: add @endpoint or @public_endpoint in {route.file}."
    else:
        yield from _version_faults(route, route.info)
        yield from _rule_faults(route, route.info.rule)
    operation = OPERATIONS.get(route.endpoint)
    if operation is None:
        yield f'{route} has no operation: add "{route.endpoint}" to OPERATIONS in {OPERATIONS_FILE}.'
        return
    for name in sorted(route.arguments - PATH_PARAMETERS.keys() - operation.path.keys()):
        yield (
            f"{route} has the path parameter {name!r} without a description: add it to PATH_PARAMETERS"
            f" in {DOCUMENT_FILE}."
        )


def _version_faults(route: _Route, info: EndpointInfo) -> Iterator[str]:
    introduced = info.introduced
    if info.is_extension and introduced not in EXTENSION_VERSIONS:
        yield (
            f"{route} was introduced in {introduced or 'no version'}, which is not a version of the"
            f" extensions: correct `introduced` in {route.file}, or add the version to EXTENSION_VERSIONS in"
            f" {EXTENSION_VERSIONS_FILE}."
        )
    elif info.is_extension:
        return
    elif not introduced:
        yield (
            f"{route} does not name the microversion that introduced it: pass `introduced` to its decorator"
            f" in {route.file}."
        )
    elif introduced not in CHANGES:
        yield (
            f"{route} was introduced in {introduced}, which is not a microversion: correct `introduced` in"
            f" {route.file}, or add the microversion to CHANGES in {MICROVERSIONS_FILE}."
        )


def _rule_faults(route: _Route, name: str | None) -> Iterator[str]:
    rules = {rule.name: rule for rule in ENDPOINT_RULES}
    if name is None:
        return
    if name not in rules:
        yield (
            f"{route} enforces the policy rule {name!r}, which does not exist: add it to ENDPOINT_RULES in"
            f" {RULES_FILE}."
        )
    elif route.request not in rules[name].requests:
        yield (
            f"{route} is missing from the policy rule {name!r}: add {route.request!r} to its requests in"
            f" {RULES_FILE}."
        )


def _unused_rules(routes: list[_Route]) -> Iterator[str]:
    """Yield a sentence for each request of a policy rule that no endpoint serves under this rule."""
    served = {(route.info.rule, route.request) for route in routes if route.info}
    for rule in ENDPOINT_RULES:
        for request in rule.requests:
            if (rule.name, request) not in served:
                yield (
                    f"The policy rule {rule.name!r} names {request!r}, but no endpoint enforces it there:"
                    f" remove the request from {RULES_FILE}."
                )


def _unused_operations(routes: list[_Route]) -> Iterator[str]:
    for endpoint in sorted(OPERATIONS.keys() - {route.endpoint for route in routes}):
        yield f"The operation {endpoint!r} has no endpoint: remove it from OPERATIONS in {OPERATIONS_FILE}."
