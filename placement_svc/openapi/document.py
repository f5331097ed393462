"""The OpenAPI document, built from the routes, the operations and the schemas."""

import inspect
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from apispec import APISpec
from flask import Flask
from werkzeug.routing import Rule

from placement_svc.domain.limits import MAX_NAME_LENGTH
from placement_svc.domain.version_header import EXTENSION_VERSIONS, EXTENSIONS, PLACEMENT, VERSION_HEADER
from placement_svc.http.accept import HTML, JSON, PLAIN
from placement_svc.http.endpoint import EndpointInfo, View, get_info
from placement_svc.http.microversion import NEWEST
from placement_svc.http.routes import Routes
from placement_svc.http.rules import PREFIX
from placement_svc.openapi import examples
from placement_svc.openapi.examples import EXAMPLES, Example
from placement_svc.openapi.fields import SINCE, Converter, Plugin
from placement_svc.openapi.operations import OPERATIONS, Operation
from placement_svc.schemas import responses
from placement_svc.schemas.base import Object, Schema
from placement_svc.schemas.scalars import DASHED_UUID, NAME, SUFFIX, String, Value
from placement_svc.schemas.staleness import StaleQuery

ABOUT = f"""\
Which resource providers can supply these resources, right now? The API of OpenStack Placement.

This document describes microversion {NEWEST}, the newest, which the header `{VERSION_HEADER}` selects.
`{SINCE}` names the microversion that introduced an operation, a parameter or a property.

{examples.ABOUT}"""

EXTENDED_VERSION_PARAMETER = f"{VERSION_HEADER}-Extensions"
"""The name of the component that describes `VERSION_HEADER` for a request that uses extensions."""

PATH_PARAMETERS = {
    "uuid": String(uuid=DASHED_UUID, metadata={"description": "The uuid of a resource provider."}),
    "consumer_uuid": String(uuid=DASHED_UUID, metadata={"description": "The uuid of a consumer."}),
    "name": String(pattern=NAME, max_length=MAX_NAME_LENGTH),
    "resource_class": String(pattern=NAME, max_length=MAX_NAME_LENGTH),
}
"""The path parameters. A value off the pattern is not an error by itself; its resource does not exist."""

ERRORS = {
    400: "The request is invalid.",
    403: "The policy does not allow the request.",
    404: "The resource does not exist.",
    406: f"The requested microversion is not supported, or `Accept` does not allow {JSON}.",
    413: "The body is too large.",
    415: f"The `Content-Type` is not {JSON}.",
    503: "The service is temporarily unavailable; retry the request later.",
}
"""The meaning of each error status that all endpoints share."""

HEADERS: dict[str, dict[str, Any]] = {
    "RequestId": {
        "description": "The id of the request in the log of the service.",
        "required": True,
        "schema": {"type": "string"},
    },
    "Microversion": {"description": "The microversion of the response.", "schema": {"type": "string"}},
    "Location": {
        "description": "The URL of the created resource.",
        "required": True,
        "schema": {"type": "string", "format": "uri"},
    },
    "LastModified": {
        "description": "When the resource last changed.",
        "schema": {"type": "string"},
        SINCE: "1.15",
    },
    "CacheControl": {"description": "`no-cache`.", "schema": {"type": "string"}, SINCE: "1.15"},
}


def describe(app: Flask) -> dict[str, Any]:
    """Return the OpenAPI document of the API of `app`, without `servers`."""
    return _Description(app).spec.to_dict()


class _Description:
    def __init__(self, app: Flask) -> None:
        plugin = Plugin()
        self.spec = APISpec("Placement", NEWEST, "3.1.1", [plugin], info={"description": ABOUT})
        assert isinstance(plugin.converter, Converter)
        self.field = plugin.converter.field2property
        self.routes = Routes(app)
        self._add_components()
        for blueprint in app.blueprints:
            self.spec.tag({"name": blueprint})
        for rule in app.url_map.iter_rules():
            self._add(rule, app.view_functions[rule.endpoint])

    def _add_components(self) -> None:
        components = self.spec.components
        components.security_scheme(
            "token", {"type": "apiKey", "in": "header", "name": "X-Auth-Token", "description": "A token."}
        )
        components.security_scheme(
            "bearer",
            {"type": "http", "scheme": "bearer", "description": "For `PLACEMENT_AUTH=token`."},
        )
        for name, header in HEADERS.items():
            components.header(name, header)
        components.parameter(
            VERSION_HEADER,
            "header",
            {
                "description": "The microversion of the request; 1.0 without the header.",
                "required": True,
                "schema": {"type": "string", "enum": [f"placement {NEWEST}", "placement latest"]},
            },
        )
        components.parameter(
            EXTENDED_VERSION_PARAMETER,
            "header",
            {
                "name": VERSION_HEADER,
                "description": "The microversion, and the version of the extensions.",
                "required": True,
                "schema": {
                    "type": "string",
                    "enum": [f"{PLACEMENT} {NEWEST}, {EXTENSIONS} {EXTENSION_VERSIONS[-1]}"],
                },
            },
        )
        for status, description in ERRORS.items():
            components.response(_error_name(status), self._error(description, responses.ErrorsSchema))
        components.response(
            _error_name(401),
            self._error(
                "The request has no token, or an invalid one.",
                responses.UnauthorizedSchema,
                responses.KeystoneUnauthorizedSchema,
            ),
        )

    def _error(self, description: str, *bodies: type[Schema]) -> dict[str, Any]:
        schemas = [self.field(Object(body())) for body in bodies]
        return {
            "description": description,
            "headers": {"x-openstack-request-id": "RequestId"},
            "content": {
                JSON: {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}},
                HTML: {"schema": {"type": "string"}},
                PLAIN: {"schema": {"type": "string"}},
            },
        }

    def _add(self, rule: Rule, view: View) -> None:
        operation, info = OPERATIONS[rule.endpoint], get_info(view)
        example = EXAMPLES.get(rule.endpoint, Example())
        assert info is not None
        blueprint, _, name = rule.endpoint.partition(".")
        described: dict[str, Any] = {
            "operationId": name,
            "tags": [blueprint],
            "summary": (inspect.getdoc(view) or "").partition("\n")[0],
            "parameters": [
                *self._version_headers(rule, operation, info),
                *self._parameters(rule, operation, example, may_be_stale=info.may_be_stale),
            ],
            "responses": self._responses(operation, info, has_path=bool(rule.arguments)),
            "security": [{"token": []}, {"bearer": []}] if info.rule else [],
        }
        if info.rule:
            described["x-placement-rule"] = f"{PREFIX}{info.rule}"
        if info.is_extension or operation.is_older_extension:
            described["description"] = "An extension of this service, not part of Placement."
        else:
            described[SINCE] = info.introduced
        if operation.body is not None:
            content = {JSON: {"schema": self.field(operation.body), "example": example.body}}
            described["requestBody"] = {"required": True, "content": content}
        path = rule.rule.replace("<", "{").replace(">", "}")
        (method,) = rule.methods or set()
        self.spec.path(path, operations={method.lower(): described})

    def _version_headers(self, rule: Rule, operation: Operation, info: EndpointInfo) -> list[str]:
        """Return the parameters for `VERSION_HEADER`; a path without a method of Placement needs none."""
        if not info.rule or self.routes.are_all_extensions(rule.rule):
            return []
        has_extensions = info.is_extension or operation.query_has_extensions or info.may_be_stale
        return [EXTENDED_VERSION_PARAMETER if has_extensions else VERSION_HEADER]

    def _parameters(
        self, rule: Rule, operation: Operation, example: Example, *, may_be_stale: bool
    ) -> Iterator[dict[str, Any]]:
        """Yield the parameters of an operation, each with its value in the example."""
        values = {"path": example.path, "query": example.query}
        for parameter in self._described_parameters(rule, operation):
            value = values[parameter["in"]].get(parameter["name"])
            yield parameter if value is None else parameter | {"example": value}
        for name, field in (StaleQuery().fields if may_be_stale else {}).items():
            assert isinstance(field, Value)
            yield self._parameter("query", name, field) | {"example": "ok"}

    def _described_parameters(self, rule: Rule, operation: Operation) -> Iterator[dict[str, Any]]:
        for name in sorted(rule.arguments):
            described = operation.path.get(name) or PATH_PARAMETERS[name]
            yield self._parameter("path", name, described) | {"required": True}
        for keys in (operation.group_query, operation.query):
            for name, field in (keys().fields if keys else {}).items():
                assert isinstance(field, Value)
                yield self._parameter("query", name, field)
        if operation.group_query:
            yield self._suffixed(operation.group_query)

    def _parameter(self, location: str, name: str, field: Value) -> dict[str, Any]:
        schema = self.field(field)
        annotations = {key: schema.pop(key) for key in ("description", SINCE) if key in schema}
        if field.metadata.get("repeats"):
            schema = {"type": "array", "items": schema}
        return {"in": location, "name": name, "required": field.required, **annotations, "schema": schema}

    def _suffixed(self, keys: type[Schema]) -> dict[str, Any]:
        """Return the one parameter that describes the keys of all suffixed request groups."""
        members = {f"^{name}{SUFFIX}$": self.field(field) for name, field in keys().fields.items()}
        return {
            "in": "query",
            "name": "groups",
            "description": (
                "The same keys with a suffix. The keys with one suffix make a request group, whose resources"
                " one provider supplies."
            ),
            SINCE: "1.33",
            "style": "form",
            "explode": True,
            "schema": {"type": "object", "patternProperties": members, "additionalProperties": False},
        }

    def _responses(self, operation: Operation, info: EndpointInfo, *, has_path: bool) -> dict[str, Any]:
        statuses = {400, 406}
        if info.rule:
            statuses |= {401, 403, 503}
        if has_path or operation.query_names_resource:
            statuses.add(404)
        if operation.body is not None:
            statuses |= {413, 415}
        described: dict[str, Any] = {
            str(status): self._success(operation, status, body)
            for status, body in operation.responses.items()
        }
        described |= {str(status): _error_name(status) for status in sorted(statuses)}
        if operation.conflict:
            described["409"] = self._error(operation.conflict, responses.ErrorsSchema)
        return described

    def _success(self, operation: Operation, status: int, body: Value | None) -> dict[str, Any]:
        headers = {"x-openstack-request-id": "RequestId", "openstack-api-version": "Microversion"}
        if operation.has_location:
            headers["location"] = "Location"
        if body is not None:
            headers |= {"last-modified": "LastModified", "cache-control": "CacheControl"}
        described: dict[str, Any] = {"description": HTTPStatus(status).phrase, "headers": headers}
        if body is not None:
            described["content"] = {JSON: {"schema": self.field(body)}}
        return described


def _error_name(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "")
