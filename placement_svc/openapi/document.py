"""The description of the API, put together from its routes, its documents and what is told of both."""

import inspect
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from apispec import APISpec
from flask import Flask
from werkzeug.routing import Rule

from placement_svc.http.endpoint import Facts
from placement_svc.http.microversion import HEADER, NEWEST
from placement_svc.http.rules import PREFIX
from placement_svc.openapi.fields import SINCE, Converter, Plugin
from placement_svc.openapi.operations import OPERATIONS, Operation
from placement_svc.schemas import responses
from placement_svc.schemas.allocation_candidates import SUFFIX
from placement_svc.schemas.base import DASHED_UUID, NAME, Object, Schema, String, Value

JSON = "application/json"

ABOUT = f"""\
Which resource providers can supply these resources, right now? The API of OpenStack Placement.

This describes microversion {NEWEST}, the newest, which the header `OpenStack-API-Version` asks for.
`{SINCE}` names the microversion that brought a call, a parameter or a member; older ones do without it.
"""

PATH = {
    "uuid": String(uuid=DASHED_UUID, metadata={"description": "The uuid of a resource provider."}),
    "consumer_uuid": String(uuid=DASHED_UUID, metadata={"description": "The uuid of a consumer."}),
    "name": String(pattern=NAME, max_length=255),
    "resource_class": String(pattern=NAME, max_length=255),
}
"""What the parts of the paths look like; another text is no error of its own, but finds nothing."""

ERRORS = {
    400: "The request is wrong in itself.",
    403: "The caller may not do this.",
    404: "There is no such thing.",
    406: f"The microversion asked for is not served, or `Accept` does not admit {JSON}.",
    413: "The body is too large.",
    415: f"The body is not said to be {JSON}.",
    503: "The service cannot answer for the moment; the same request may succeed later.",
}
"""What the statuses mean whose meaning is the same everywhere."""

HEADERS: dict[str, dict[str, Any]] = {
    "RequestId": {
        "description": "The id under which the service logs what concerns the request.",
        "required": True,
        "schema": {"type": "string"},
    },
    "Microversion": {"description": "The microversion of the answer.", "schema": {"type": "string"}},
    "Location": {
        "description": "Where to find what was made.",
        "required": True,
        "schema": {"type": "string", "format": "uri"},
    },
    "LastModified": {
        "description": "When what is told was last changed.",
        "schema": {"type": "string"},
        SINCE: "1.15",
    },
    "CacheControl": {"description": "`no-cache`.", "schema": {"type": "string"}, SINCE: "1.15"},
}


def describe(app: Flask) -> dict[str, Any]:
    """Return the OpenAPI document of the API that `app` serves, without the place where it is served."""
    return _Description(app).spec.to_dict()


class _Description:
    def __init__(self, app: Flask) -> None:
        plugin = Plugin()
        self.spec = APISpec("Placement", NEWEST, "3.1.1", [plugin], info={"description": ABOUT})
        assert isinstance(plugin.converter, Converter)
        self.field = plugin.converter.field2property
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
            HEADER,
            "header",
            {
                "description": "The microversion that the caller understands; without it, it is 1.0.",
                "required": True,
                "schema": {"type": "string", "enum": [f"placement {NEWEST}", "placement latest"]},
            },
        )
        for status, meaning in ERRORS.items():
            components.response(_error_name(status), self._error(meaning, responses.ErrorsSchema))
        components.response(
            _error_name(401),
            self._error(
                "The request does not say who asks, or bears a token that does not count.",
                responses.UnauthorizedSchema,
                responses.KeystoneUnauthorizedSchema,
            ),
        )

    def _error(self, meaning: str, *bodies: type[Schema]) -> dict[str, Any]:
        schemas = [self.field(Object(body())) for body in bodies]
        return {
            "description": meaning,
            "headers": {"x-openstack-request-id": "RequestId"},
            "content": {
                JSON: {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}},
                "text/html": {"schema": {"type": "string"}},
                "text/plain": {"schema": {"type": "string"}},
            },
        }

    def _add(self, rule: Rule, view: Any) -> None:
        operation, facts = OPERATIONS[rule.endpoint], getattr(view, "facts", None)
        blueprint, _, name = rule.endpoint.partition(".")
        described: dict[str, Any] = {
            "operationId": name,
            "tags": [blueprint],
            "summary": (inspect.getdoc(view) or "").partition("\n")[0],
            "parameters": [*([HEADER] if facts else []), *self._parameters(rule, operation)],
            "responses": self._responses(operation, facts, has_path=bool(rule.arguments)),
            "security": [{"token": []}, {"bearer": []}] if facts else [],
        }
        if facts:
            described["x-placement-rule"] = f"{PREFIX}{facts.rule}"
        if operation.ours:
            described["description"] = "Of this service alone: it is not in Placement."
        else:
            described[SINCE] = facts.introduced if facts else "1.0"
        if operation.body is not None:
            content = {JSON: {"schema": self.field(operation.body)}}
            described["requestBody"] = {"required": True, "content": content}
        path = rule.rule.replace("<", "{").replace(">", "}")
        (method,) = rule.methods or set()
        self.spec.path(path, operations={method.lower(): described})

    def _parameters(self, rule: Rule, operation: Operation) -> Iterator[dict[str, Any]]:
        for name in sorted(rule.arguments):
            yield self._parameter("path", name, operation.path.get(name, PATH[name])) | {"required": True}
        for keys in (operation.group_query, operation.query):
            for name, field in (keys().fields if keys else {}).items():
                assert isinstance(field, Value)
                yield self._parameter("query", name, field)
        if operation.group_query:
            yield self._suffixed(operation.group_query)

    def _parameter(self, place: str, name: str, field: Value) -> dict[str, Any]:
        schema = self.field(field)
        told = {key: schema.pop(key) for key in ("description", SINCE) if key in schema}
        if field.metadata.get("repeats"):
            schema = {"type": "array", "items": schema}
        return {"in": place, "name": name, "required": field.required, **told, "schema": schema}

    def _suffixed(self, keys: type[Schema]) -> dict[str, Any]:
        """Return the parameter that stands for those of all request groups with a suffix."""
        members = {f"^{name}{SUFFIX}$": self.field(field) for name, field in keys().fields.items()}
        return {
            "in": "query",
            "name": "groups",
            "description": (
                "The same keys with a suffix. Those of one suffix make a request group that one provider"
                " supplies whole."
            ),
            SINCE: "1.33",
            "style": "form",
            "explode": True,
            "schema": {"type": "object", "patternProperties": members, "additionalProperties": False},
        }

    def _responses(self, operation: Operation, facts: Facts | None, *, has_path: bool) -> dict[str, Any]:
        statuses = {400, 406}
        if facts:
            statuses |= {401, 403, 503}
        if has_path:
            statuses.add(404)
        if operation.body is not None:
            statuses |= {413, 415}
        described: dict[str, Any] = {
            str(status): self._success(operation, status, body) for status, body in operation.answers.items()
        }
        described |= {str(status): _error_name(status) for status in sorted(statuses)}
        if operation.conflict:
            described["409"] = self._error(operation.conflict, responses.ErrorsSchema)
        return described

    def _success(self, operation: Operation, status: int, body: Value | None) -> dict[str, Any]:
        headers = {"x-openstack-request-id": "RequestId", "openstack-api-version": "Microversion"}
        if operation.locates:
            headers["location"] = "Location"
        if body is not None:
            headers |= {"last-modified": "LastModified", "cache-control": "CacheControl"}
        described: dict[str, Any] = {"description": HTTPStatus(status).phrase, "headers": headers}
        if body is not None:
            described["content"] = {JSON: {"schema": self.field(body)}}
        return described


def _error_name(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "")
