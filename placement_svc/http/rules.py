"""The rules of policy as they are unless a policy file says otherwise (`docs/spec/http.md 15`).

`oslopolicy-sample-generator --namespace placement-svc` writes them as such a file.
"""

from oslo_policy.policy import DeprecatedRule, DocumentedRuleDefault, Operation, RuleDefault

PREFIX = "placement:"
"""How the rules begin that requests ask for."""

LEGACY = "role:admin"
"""What suffices too, in the profile `legacy`, for each base rule that no policy file replaces."""

_BASE = (
    ("admin_api", "role:admin", "Administrators."),
    ("service_api", "role:service", "Services of the cloud, such as a scheduler."),
    ("admin_or_service_api", "role:admin or role:service", "Administrators and services."),
    (
        "project_reader_api",
        "role:reader and project_id:%(project_id)s",
        "Readers of the project asked about.",
    ),
    (
        "admin_or_project_reader_or_service_api",
        "role:admin or (role:reader and project_id:%(project_id)s) or role:service",
        "Administrators, services, and readers of the project asked about.",
    ),
)

_PROVIDER = "/resource_providers/{uuid}"
_INVENTORIES = f"{_PROVIDER}/inventories"
_INVENTORY = f"{_INVENTORIES}/{{resource_class}}"

_OPERATIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("resource_providers:list", "List resource providers.", ("GET /resource_providers",)),
    ("resource_providers:create", "Create a resource provider.", ("POST /resource_providers",)),
    ("resource_providers:show", "Show a resource provider.", (f"GET {_PROVIDER}",)),
    ("resource_providers:update", "Rename or move a resource provider.", (f"PUT {_PROVIDER}",)),
    ("resource_providers:delete", "Delete a resource provider.", (f"DELETE {_PROVIDER}",)),
    ("resource_classes:list", "List resource classes.", ("GET /resource_classes",)),
    ("resource_classes:create", "Create a resource class.", ("POST /resource_classes",)),
    ("resource_classes:show", "Show a resource class.", ("GET /resource_classes/{name}",)),
    ("resource_classes:update", "Create or rename a resource class.", ("PUT /resource_classes/{name}",)),
    ("resource_classes:delete", "Delete a resource class.", ("DELETE /resource_classes/{name}",)),
    ("resource_providers:inventories:list", "List what a provider has.", (f"GET {_INVENTORIES}",)),
    ("resource_providers:inventories:create", "Add an inventory.", (f"POST {_INVENTORIES}",)),
    ("resource_providers:inventories:show", "Show one inventory.", (f"GET {_INVENTORY}",)),
    (
        "resource_providers:inventories:update",
        "Say what a provider has.",
        (f"PUT {_INVENTORIES}", f"PUT {_INVENTORY}"),
    ),
    (
        "resource_providers:inventories:delete",
        "Delete inventories.",
        (f"DELETE {_INVENTORIES}", f"DELETE {_INVENTORY}"),
    ),
    ("resource_providers:aggregates:list", "List a provider's aggregates.", (f"GET {_PROVIDER}/aggregates",)),
    (
        "resource_providers:aggregates:update",
        "Set a provider's aggregates.",
        (f"PUT {_PROVIDER}/aggregates",),
    ),
    ("resource_providers:traits:list", "List a provider's traits.", (f"GET {_PROVIDER}/traits",)),
    ("resource_providers:traits:update", "Set a provider's traits.", (f"PUT {_PROVIDER}/traits",)),
    ("resource_providers:traits:delete", "Remove a provider's traits.", (f"DELETE {_PROVIDER}/traits",)),
    ("traits:list", "List traits.", ("GET /traits",)),
    ("traits:show", "Tell whether a trait exists.", ("GET /traits/{name}",)),
    ("traits:update", "Create a trait.", ("PUT /traits/{name}",)),
    ("traits:delete", "Delete a trait.", ("DELETE /traits/{name}",)),
    ("aggregates:list", "List aggregates.", ("GET /aggregates",)),
    ("aggregates:show", "Show an aggregate.", ("GET /aggregates/{uuid}",)),
    (
        "resource_providers:allocations:list",
        "List a provider's allocations.",
        (f"GET {_PROVIDER}/allocations",),
    ),
    ("resource_providers:usages", "Show what is used of a provider.", (f"GET {_PROVIDER}/usages",)),
    ("allocations:manage", "Write the allocations of several consumers.", ("POST /allocations",)),
    ("allocations:list", "List a consumer's allocations.", ("GET /allocations/{consumer_uuid}",)),
    ("allocations:update", "Write a consumer's allocations.", ("PUT /allocations/{consumer_uuid}",)),
    ("allocations:delete", "Delete a consumer's allocations.", ("DELETE /allocations/{consumer_uuid}",)),
    ("allocation_candidates:list", "Ask who can supply resources.", ("GET /allocation_candidates",)),
    ("usages", "Show what a project uses.", ("GET /usages",)),
    ("reshaper:reshape", "Move inventories and allocations between providers.", ("POST /reshaper",)),
)

_CHECKS = {
    "usages": "rule:admin_or_project_reader_or_service_api",
    "reshaper:reshape": "rule:service_api",
}
"""What the operations demand that are not for administrators and services."""


def _base(name: str, check: str, description: str) -> RuleDefault:
    legacy = DeprecatedRule(
        name, LEGACY, deprecated_reason="It counts in the profile legacy only.", deprecated_since="0.1"
    )
    return RuleDefault(name, check, description, deprecated_rule=None if LEGACY in check else legacy)


def _operation(name: str, description: str, requests: tuple[str, ...]) -> DocumentedRuleDefault:
    operations = [Operation(method=method, path=path) for method, path in map(str.split, requests)]
    check = _CHECKS.get(name, "rule:admin_or_service_api")
    return DocumentedRuleDefault(f"{PREFIX}{name}", check, description, operations, scope_types=["project"])


def list_rules() -> list[RuleDefault]:
    """Return every rule: the base rules, and one for each kind of operation."""
    return [*(_base(*rule) for rule in _BASE), *(_operation(*rule) for rule in _OPERATIONS)]
