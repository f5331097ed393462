"""Policy enforcement (`docs/spec/http.md 15`): the default rules, overridden by the policy file."""

import gc
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from flask import current_app, g
from oslo_config import cfg
from oslo_policy import policy as oslo
from werkzeug.exceptions import Forbidden

from placement_svc.domain.errors import SetupError, Unavailable
from placement_svc.domain.wording import shorten
from placement_svc.http.auth import Caller
from placement_svc.http.rules import PREFIX, list_rules
from placement_svc.http.watched_file import WatchedFile, read_regular_file

log = logging.getLogger(__name__)

# This module reports the errors of a policy file, in one line each.
logging.getLogger("oslo_policy").setLevel(logging.CRITICAL)

_ROLE = re.compile(r"(?<!\S)\(*role:([^\s()]+)")
"""A check of a role, in the text of a rule."""

_QUOTED_NAME = re.compile(r"'([^']+)'")
"""The name of a rule in the text of an `InvalidDefinitionError`, which advises to read a log."""

NEVER = "!"
"""The check that always fails; oslo.policy replaces a check that it cannot parse by it."""

MAX_NESTING = 50
"""The most levels of checks within a rule, such as `not (a and not b)`; their evaluation is recursive."""

MAX_QUOTED = 200
"""The most characters of a check that an error quotes."""

SAMPLE_TARGET = {"user_id": "user", "project_id": "project"}
SAMPLE_CREDENTIALS = SAMPLE_TARGET | {"roles": ["role"], "domain_id": "domain", "system_scope": "all"}
"""The target and the caller for whom each check of a policy file is evaluated once."""

DECISION_CACHE_SIZE = 1000
"""How many decisions a process caches; most requests come from the same few callers."""

Target = frozenset[tuple[str, str]]
Decide = Callable[[str, Caller, Target | None], str | None]
"""Return why a rule denies a caller the request, None if it allows it."""


class Policy:
    """The policy: a profile, `secure` or `legacy`, and optionally the rules of a policy file.

    The file is reloaded when it has changed. Raises `SetupError` if it is unreadable or invalid.
    """

    def __init__(self, profile: str, file: Path | None) -> None:
        self._decide: Callable[[], Decide]
        if file is None:
            decide = _decider(load(profile, None))
            self._decide = lambda: decide
        else:
            self._decide = WatchedFile(file, lambda path: _decider(load(profile, path))).value

    def refresh(self) -> None:
        """Reload the file if it has changed."""
        self._decide()

    def enforce(self, rule: str, target: Mapping[str, str] | None = None) -> None:
        """Raise `Forbidden` unless the caller of the current request satisfies `rule`.

        `target` has the attributes that checks such as ``project_id:%(project_id)s`` refer to. By default
        they are the caller's own user and project.
        """
        denial = self._decide()(rule, g.caller, None if target is None else frozenset(target.items()))
        if denial is not None:
            raise Forbidden(denial)


def enforce(rule: str, target: Mapping[str, str] | None = None) -> None:
    """Raise `Forbidden` unless the caller of the current request satisfies an endpoint's rule.

    `rule` is without its prefix, `target` that of `Policy.enforce`.
    """
    current: Policy = current_app.extensions["policy"]
    current.enforce(f"{PREFIX}{rule}", target)


def _decider(enforcer: oslo.Enforcer) -> Decide:
    """Return a function that decides by the rules of `enforcer`, and caches its decisions.

    A check takes oslo.policy about 100 us, most of it spent on introspection, and its result never
    changes. Only checks of plug-ins, such as ``http:``, may depend on another service; with one of
    those, nothing is cached.
    """

    def decide(rule: str, caller: Caller, target: Target | None) -> str | None:
        own = {"user_id": caller.user_id, "project_id": caller.project_id}
        credentials = own | {
            "roles": caller.roles,
            "domain_id": caller.domain_id,
            "system_scope": caller.system_scope,
        }
        try:
            enforcer.authorize(rule, own if target is None else dict(target), credentials, do_raise=True)
        except oslo.InvalidScope:
            return rule
        except oslo.PolicyNotAuthorized:
            return f"Policy does not allow {rule} to be performed."
        except Exception as error:
            # The checks of plug-ins raise errors of any class, such as those of an HTTP client.
            log.error("The policy rule %s cannot be evaluated: %s", rule, error)
            raise Unavailable(f"The policy rule {rule} cannot be evaluated at the moment.") from error
        return None

    if any(f"{kind}:" in str(check) for check in enforcer.rules.values() for kind in _plugin_kinds()):
        return decide
    return lru_cache(DECISION_CACHE_SIZE)(decide)


@cache
def _plugin_kinds() -> list[str]:
    """Return the kinds of checks that plug-ins evaluate, such as ``http``."""
    return [plugin.name for plugin in entry_points(group="oslo.policy.rule_checks")]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect no unreachable objects in the block: their finalizers would fail at the recursion limit."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# The parsers of YAML and of checks call themselves for each level of a text.
@_without_collection()
def load(profile: str, file: Path | None) -> oslo.Enforcer:
    """Return the enforcer of a profile whose default rules a policy file overrides.

    Raises `SetupError` if the file is unreadable or invalid.
    """
    config = cfg.ConfigOpts()
    config([], project="placement-svc", default_config_files=[], default_config_dirs=[])
    enforcer = oslo.Enforcer(config, policy_file=os.devnull, overwrite=False)
    config.set_override("policy_dirs", [], "oslo_policy")
    config.set_override("enforce_new_defaults", profile == "secure", "oslo_policy")
    enforcer.suppress_default_change_warnings = True
    enforcer.register_defaults(list_rules())
    if file:
        enforcer.file_rules = _read(file)
        enforcer.set_rules({name: rule.check for name, rule in enforcer.file_rules.items()})
        for name in enforcer.file_rules.keys() - enforcer.registered_rules.keys():
            if name.startswith(PREFIX):
                log.warning("The policy file %s has a rule that no endpoint uses: %s", file, name)
    enforcer.load_rules(force_reload=True)
    # Disables oslo.policy's own reloading: `WatchedFile` replaces the whole enforcer instead.
    enforcer.use_conf = False
    try:
        enforcer.check_rules(raise_on_violation=True)
    except RecursionError as error:
        raise SetupError(
            f"The policy file {file} has rules that refer to others on too many levels"
        ) from error
    except oslo.InvalidDefinitionError as error:
        names = ", ".join(sorted(set(_QUOTED_NAME.findall(str(error)))))
        raise SetupError(
            f"The policy file {file} has rules that refer to themselves or to undefined rules: {names}"
        ) from error
    return enforcer


def named_roles(enforcer: oslo.Enforcer) -> frozenset[str]:
    """Return the names of all roles that the rules of a policy name, in lower case."""
    checks = " ".join(str(check) for check in enforcer.rules.values())
    return frozenset(role.lower() for role in _ROLE.findall(checks))


def _read(file: Path) -> dict[str, oslo.RuleDefault]:
    """Return the rules of a policy file by name."""
    try:
        checks = oslo.parse_file_contents(read_regular_file(file).decode())
    except OSError as error:
        raise SetupError(f"The policy file {file} cannot be read: {error.strerror}") from error
    except Exception as error:
        # PyYAML also raises errors of other classes than its own, such as RecursionError.
        raise SetupError(f"The policy file {file} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(checks, dict):
        raise SetupError(f"The policy file {file} must map the names of rules to checks")
    return {name: _rule(file, name, check) for name, check in checks.items()}


def _rule(file: Path, name: object, check: object) -> oslo.RuleDefault:
    if not isinstance(name, str):
        raise SetupError(f"The policy file {file} has a rule name that is not a string: {name!r}")
    if isinstance(check, str) and (rule := _parsed(name, check)):
        return rule
    raise SetupError(
        f"The policy file {file} has an invalid check for {name}: {shorten(repr(check), MAX_QUOTED)}"
    )


def _parsed(name: str, check: str) -> oslo.RuleDefault | None:
    """Return a rule, None if its check is invalid: it cannot be parsed or evaluated."""
    try:
        rule = oslo.RuleDefault(name, check)
        for each in _leaves(rule.check):
            _evaluate(each)
        return rule if NEVER in check or NEVER not in str(rule.check) else None
    except Exception:
        # The checks of oslo.policy raise errors of many classes, such as those of string formatting.
        return None


def _leaves(check: Any) -> list[Any]:
    """Return the checks within a check that contain no others; raise `RecursionError` at `MAX_NESTING`."""
    level, leaves = [check], []
    for _ in range(MAX_NESTING):
        inner = []
        for each in level:
            if isinstance(each, oslo.AndCheck | oslo.OrCheck):
                inner += each.rules
            elif isinstance(each, oslo.NotCheck):
                inner.append(each.rule)
            else:
                leaves.append(each)
        if not inner:
            return leaves
        level = inner
    raise RecursionError


def _evaluate(check: Any) -> None:
    """Evaluate a check for the sample caller; raise the error that this raises.

    For the check of a plug-in, which may send a request, only its text is formatted. A reference to another
    rule is not followed.
    """
    if isinstance(check, oslo.RuleCheck):
        return
    if isinstance(check, oslo.Check) and check.kind in _plugin_kinds():
        with suppress(KeyError):
            check.match % SAMPLE_TARGET
        return
    check(SAMPLE_TARGET, SAMPLE_CREDENTIALS, None)
