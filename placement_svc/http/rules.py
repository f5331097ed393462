"""The default policy rules (`docs/spec/http.md 15`).

`oslopolicy-sample-generator --namespace placement-svc` writes them as a policy file. Each endpoint names
the rule that protects it, and `openapi.registry` checks that the rules match the endpoints.
"""

from dataclasses import dataclass

from oslo_policy.policy import DeprecatedRule, DocumentedRuleDefault, Operation, RuleDefault

PREFIX = "placement:"
"""The prefix of the rules that endpoints enforce; the base rules have none."""

LEGACY = "role:admin"
"""The check that the profile `legacy` adds to each base rule, unless the policy file replaces the rule."""


@dataclass(frozen=True)
class EndpointRule:
    """The rule that protects one or more endpoints.

    `name` is without `PREFIX`. `requests` has the method and the path of each endpoint.
    """

    name: str
    description: str
    requests: tuple[str, ...]
    check: str = "rule:admin_or_service_api"


_BASE = (
    ("admin_api", "role:admin", "Administrators."),
    ("service_api", "role:service", "Services of the cloud, such as a scheduler."),
    ("admin_or_service_api", "role:admin or role:service", "Administrators and services."),
    (
        "project_reader_api",
        "role:reader and project_id:%(project_id)s",
        "Readers of the requested project.",
    ),
    (
        "admin_or_project_reader_or_service_api",
        "role:admin or (role:reader and project_id:%(project_id)s) or role:service",
        "Administrators, services, and readers of the requested project.",
    ),
)

_PROVIDER = "/resource_providers/{uuid}"
_INVENTORIES = f"{_PROVIDER}/inventories"
_INVENTORY = f"{_INVENTORIES}/{{resource_class}}"

ENDPOINT_RULES = (
    EndpointRule("resource_providers:list", "List resource providers.", ("GET /resource_providers",)),
    EndpointRule("resource_providers:create", "Create a resource provider.", ("POST /resource_providers",)),
    EndpointRule("resource_providers:show", "Show a resource provider.", (f"GET {_PROVIDER}",)),
    EndpointRule("resource_providers:update", "Rename or move a resource provider.", (f"PUT {_PROVIDER}",)),
    EndpointRule("resource_providers:delete", "Delete a resource provider.", (f"DELETE {_PROVIDER}",)),
    EndpointRule("resource_classes:list", "List resource classes.", ("GET /resource_classes",)),
    EndpointRule("resource_classes:create", "Create a resource class.", ("POST /resource_classes",)),
    EndpointRule("resource_classes:show", "Show a resource class.", ("GET /resource_classes/{name}",)),
    EndpointRule(
        "resource_classes:update", "Create or rename a resource class.", ("PUT /resource_classes/{name}",)
    ),
    EndpointRule("resource_classes:delete", "Delete a resource class.", ("DELETE /resource_classes/{name}",)),
    EndpointRule(
        "resource_providers:inventories:list", "List a provider's inventories.", (f"GET {_INVENTORIES}",)
    ),
    EndpointRule("resource_providers:inventories:create", "Add an inventory.", (f"POST {_INVENTORIES}",)),
    EndpointRule("resource_providers:inventories:show", "Show an inventory.", (f"GET {_INVENTORY}",)),
    EndpointRule(
        "resource_providers:inventories:update",
        "Set a provider's inventories, or one of them.",
        (f"PUT {_INVENTORIES}", f"PATCH {_INVENTORIES}", f"PUT {_INVENTORY}"),
    ),
    EndpointRule(
        "resource_providers:inventories:delete",
        "Delete a provider's inventories, or one of them.",
        (f"DELETE {_INVENTORIES}", f"DELETE {_INVENTORY}"),
    ),
    EndpointRule(
        "resource_providers:aggregates:list",
        "List a provider's aggregates.",
        (f"GET {_PROVIDER}/aggregates",),
    ),
    EndpointRule(
        "resource_providers:aggregates:update",
        "Set a provider's aggregates.",
        (f"PUT {_PROVIDER}/aggregates", f"PATCH {_PROVIDER}/aggregates"),
    ),
    EndpointRule("resource_providers:traits:list", "List a provider's traits.", (f"GET {_PROVIDER}/traits",)),
    EndpointRule(
        "resource_providers:traits:update",
        "Set a provider's traits.",
        (f"PUT {_PROVIDER}/traits", f"PATCH {_PROVIDER}/traits"),
    ),
    EndpointRule(
        "resource_providers:traits:delete", "Delete a provider's traits.", (f"DELETE {_PROVIDER}/traits",)
    ),
    EndpointRule("traits:list", "List traits.", ("GET /traits",)),
    EndpointRule("traits:show", "Check that a trait exists.", ("GET /traits/{name}",)),
    EndpointRule("traits:update", "Create a trait.", ("PUT /traits/{name}",)),
    EndpointRule("traits:delete", "Delete a trait.", ("DELETE /traits/{name}",)),
    EndpointRule("aggregates:list", "List aggregates.", ("GET /aggregates",)),
    EndpointRule("aggregates:show", "Show an aggregate.", ("GET /aggregates/{uuid}",)),
    EndpointRule(
        "resource_providers:allocations:list",
        "List a provider's allocations.",
        (f"GET {_PROVIDER}/allocations",),
    ),
    EndpointRule("resource_providers:usages", "Show a provider's usages.", (f"GET {_PROVIDER}/usages",)),
    EndpointRule(
        "allocations:list_many",
        "List the allocations of several providers or consumers. Needs the rule of the single read too.",
        ("GET /allocations",),
    ),
    EndpointRule("allocations:manage", "Set the allocations of several consumers.", ("POST /allocations",)),
    EndpointRule("allocations:list", "List a consumer's allocations.", ("GET /allocations/{consumer_uuid}",)),
    EndpointRule(
        "allocations:update",
        "Set a consumer's allocations, or let the service choose them.",
        ("PUT /allocations/{consumer_uuid}", "POST /claims"),
    ),
    EndpointRule(
        "allocations:delete", "Delete a consumer's allocations.", ("DELETE /allocations/{consumer_uuid}",)
    ),
    EndpointRule(
        "allocation_candidates:list", "List allocation candidates.", ("GET /allocation_candidates",)
    ),
    EndpointRule(
        "allocation_candidates:empty",
        "List searches for allocation candidates that found none.",
        ("GET /allocation_candidates/empty",),
    ),
    EndpointRule(
        "allocation_candidates:explain",
        "Explain a request for allocation candidates.",
        ("GET /allocation_candidates/explanation",),
    ),
    EndpointRule(
        "allocation_candidates:capacity",
        "Show how often a request for allocation candidates can be claimed.",
        ("GET /allocation_candidates/capacity",),
    ),
    EndpointRule(
        "usages",
        "Show a project's usages.",
        ("GET /usages",),
        check="rule:admin_or_project_reader_or_service_api",
    ),
    EndpointRule(
        "capacity",
        "Show sums of inventories; those by project or consumer type need the rule usages too.",
        ("GET /capacity",),
    ),
    EndpointRule(
        "consumers:list",
        "List consumers; with their providers, this needs allocations:list too.",
        ("GET /consumers",),
        check="rule:admin_or_project_reader_or_service_api",
    ),
    EndpointRule(
        "consumers:show",
        "Show a consumer.",
        ("GET /consumers/{consumer_uuid}",),
        check="rule:admin_or_project_reader_or_service_api",
    ),
    EndpointRule(
        "projects:list",
        "List projects with their usages.",
        ("GET /projects",),
        check="rule:admin_or_project_reader_or_service_api",
    ),
    EndpointRule("placement_groups:list", "List placement groups.", ("GET /placement_groups",)),
    EndpointRule(
        "placement_groups:show", "Show a placement group and its members.", ("GET /placement_groups/{uuid}",)
    ),
    EndpointRule(
        "placement_groups:update",
        "Create a placement group, or replace its policy.",
        ("PUT /placement_groups/{uuid}",),
    ),
    EndpointRule(
        "placement_groups:delete", "Delete a placement group.", ("DELETE /placement_groups/{uuid}",)
    ),
    EndpointRule(
        "reshaper:reshape",
        "Change inventories and allocations in one transaction.",
        ("POST /reshaper",),
        check="rule:service_api",
    ),
)


def _base_default(name: str, check: str, description: str) -> RuleDefault:
    legacy = DeprecatedRule(
        name, LEGACY, deprecated_reason="It applies only in the profile legacy.", deprecated_since="0.1"
    )
    return RuleDefault(name, check, description, deprecated_rule=None if LEGACY in check else legacy)


def _endpoint_default(rule: EndpointRule) -> DocumentedRuleDefault:
    operations = [Operation(method=method, path=path) for method, path in map(str.split, rule.requests)]
    return DocumentedRuleDefault(
        f"{PREFIX}{rule.name}", rule.check, rule.description, operations, scope_types=["project"]
    )


def list_rules() -> list[RuleDefault]:
    """Return every default rule: the base rules, then the rules of the endpoints."""
    return [*(_base_default(*rule) for rule in _BASE), *(_endpoint_default(rule) for rule in ENDPOINT_RULES)]
