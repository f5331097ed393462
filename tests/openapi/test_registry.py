"""The application does not start while a declaration of an endpoint is missing or unused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flask import Blueprint, Flask

from placement_svc import app as application
from placement_svc.api import BLUEPRINTS
from placement_svc.config import Settings
from placement_svc.http.endpoint import endpoint, public_endpoint
from placement_svc.http.pipeline import MethodRule
from placement_svc.http.rules import ENDPOINT_RULES, EndpointRule
from placement_svc.openapi import registry
from placement_svc.openapi.operations import OPERATIONS, Operation
from placement_svc.openapi.registry import DeclarationError, check_endpoints

UNREACHABLE = "postgresql+psycopg2://nobody@127.0.0.1:1/none"
RULE = EndpointRule("planets:show", "Show a planet.", ("GET /planets/{name}",))
HERE = __name__.replace(".", "/") + ".py"
DECLARATION = endpoint("planets:show", introduced="1.5")
PLANET = "The endpoint planets.show_planet (GET /planets/{name})"

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def undeclared(view: Callable[..., Any]) -> Callable[..., Any]:
    """Leave a view without a declaration."""
    return view


def planets(declare: Decorator, path: str = "/planets/<name>") -> Blueprint:
    """Return a blueprint with one more endpoint."""
    blueprint = Blueprint("planets", __name__)

    @blueprint.get(path)
    @declare
    def show_planet(name: str) -> str:
        """Show a planet."""
        return name

    return blueprint


def faults(*added: Blueprint) -> list[str]:
    """Return the faults of an application with these blueprints in addition to its own."""
    app = Flask(__name__, static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_rule_class = MethodRule
    for blueprint in (*BLUEPRINTS, *added):
        app.register_blueprint(blueprint)
    try:
        check_endpoints(app)
    except DeclarationError as error:
        return str(error).splitlines()
    return []


@pytest.fixture
def add_rule(monkeypatch: pytest.MonkeyPatch) -> Callable[[EndpointRule], None]:
    """A function that adds a policy rule."""
    return lambda rule: monkeypatch.setattr(registry, "ENDPOINT_RULES", (*ENDPOINT_RULES, rule))


@pytest.fixture
def operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation of the new endpoint."""
    monkeypatch.setitem(OPERATIONS, "planets.show_planet", Operation({204: None}))  # type: ignore[arg-type]


def test_endpoints_of_the_application_are_complete() -> None:
    assert faults() == []


@pytest.mark.usefixtures("operation")
def test_complete_endpoint_has_no_faults(add_rule: Callable[[EndpointRule], None]) -> None:
    add_rule(RULE)
    assert faults(planets(DECLARATION)) == []


@pytest.mark.usefixtures("operation")
def test_public_endpoint_needs_no_rule() -> None:
    assert faults(planets(public_endpoint(introduced="1.0"))) == []


@pytest.mark.usefixtures("operation")
def test_view_without_declaration_is_a_fault() -> None:
    assert faults(planets(undeclared)) == [
        f"{PLANET} is not declared: add @endpoint or @public_endpoint in {HERE}."
    ]


@pytest.mark.usefixtures("operation")
def test_missing_rule_is_a_fault() -> None:
    assert faults(planets(DECLARATION)) == [
        f"{PLANET} enforces the policy rule 'planets:show', which"
        " does not exist: add it to ENDPOINT_RULES in placement_svc/http/rules.py."
    ]


@pytest.mark.usefixtures("operation")
def test_rule_without_the_request_is_a_fault() -> None:
    assert faults(planets(endpoint("traits:show", introduced="1.5"))) == [
        f"{PLANET} is missing from the policy rule 'traits:show':"
        " add 'GET /planets/{name}' to its requests in placement_svc/http/rules.py."
    ]


def test_unused_rule_is_a_fault(add_rule: Callable[[EndpointRule], None]) -> None:
    add_rule(RULE)
    assert faults() == [
        "The policy rule 'planets:show' names 'GET /planets/{name}', but no endpoint enforces it there:"
        " remove the request from placement_svc/http/rules.py."
    ]


@pytest.mark.usefixtures("operation")
def test_unused_request_of_a_rule_is_a_fault(add_rule: Callable[[EndpointRule], None]) -> None:
    add_rule(replace(RULE, requests=("GET /planets", *RULE.requests)))
    [fault] = faults(planets(DECLARATION))
    assert fault.startswith(
        "The policy rule 'planets:show' names 'GET /planets', but no endpoint enforces it"
    )


def test_missing_operation_is_a_fault(add_rule: Callable[[EndpointRule], None]) -> None:
    add_rule(RULE)
    assert faults(planets(DECLARATION)) == [
        f"{PLANET} has no operation: add"
        ' "planets.show_planet" to OPERATIONS in placement_svc/openapi/operations.py.'
    ]


@pytest.mark.usefixtures("operation")
def test_unused_operation_is_a_fault() -> None:
    assert faults() == [
        "The operation 'planets.show_planet' has no endpoint: remove it from OPERATIONS in"
        " placement_svc/openapi/operations.py."
    ]


@pytest.mark.usefixtures("operation")
@pytest.mark.parametrize("declare", [endpoint("traits:show"), public_endpoint()])
def test_missing_microversion_is_a_fault(declare: Callable[..., Any]) -> None:
    assert faults(planets(declare))[0] == (
        f"{PLANET} does not name the microversion that introduced"
        f" it: pass `introduced` to its decorator in {HERE}."
    )


@pytest.mark.usefixtures("operation")
def test_unknown_microversion_is_a_fault() -> None:
    assert faults(planets(public_endpoint(introduced="1.99"))) == [
        f"{PLANET} was introduced in 1.99, which is not a"
        f" microversion: correct `introduced` in {HERE}, or add the microversion to CHANGES in"
        " placement_svc/http/microversion.py."
    ]


@pytest.mark.usefixtures("operation")
def test_path_parameter_without_description_is_a_fault() -> None:
    assert faults(planets(public_endpoint(introduced="1.0"), "/planets/<planet>")) == [
        "The endpoint planets.show_planet (GET /planets/{planet}) has the path parameter 'planet' without a"
        " description: add it to PATH_PARAMETERS in placement_svc/openapi/document.py."
    ]


def test_application_does_not_start_with_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "BLUEPRINTS", (*BLUEPRINTS, planets(undeclared)))
    with pytest.raises(DeclarationError) as raised:
        application.create_app(Settings(database_url=UNREACHABLE))
    without_declaration, without_operation = str(raised.value).splitlines()
    assert without_declaration.endswith(f"is not declared: add @endpoint or @public_endpoint in {HERE}.")
    assert "has no operation" in without_operation
