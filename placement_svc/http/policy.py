"""The policy (`docs/spec/http.md 15`): the rules of `placement_svc.http.rules` and of the policy file."""

import logging
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from flask import g
from oslo_config import cfg
from oslo_policy import policy as oslo
from werkzeug.exceptions import Forbidden

from placement_svc.domain.errors import SetupError
from placement_svc.http.auth import Caller
from placement_svc.http.rules import PREFIX, list_rules
from placement_svc.http.watched_file import WatchedFile

log = logging.getLogger(__name__)

# What is wrong with a policy file is told here, in a line.
logging.getLogger("oslo_policy").setLevel(logging.CRITICAL)

NEVER = "!"
"""The check that nobody passes; oslo.policy puts it in the place of one that it does not understand."""


DECISIONS = 1000
"""How many decisions a process remembers: a service asks as the same few callers again and again."""

Target = frozenset[tuple[str, str]]
Decide = Callable[[str, Caller, Target | None], str | None]
"""Tells why a caller may not do what a rule is about, None if they may."""


class Policy:
    """What callers may do: a profile, `secure` or `legacy`, and the rules of a policy file if there is one.

    The file is read again whenever it has changed. Raises `SetupError` if it cannot be used.
    """

    def __init__(self, profile: str, file: Path | None) -> None:
        self._decide: Callable[[], Decide]
        if file is None:
            decide = _decider(load(profile, None))
            self._decide = lambda: decide
        else:
            self._decide = WatchedFile(file, lambda path: _decider(load(profile, path))).meaning

    def enforce(self, rule: str, target: Mapping[str, str] | None = None) -> None:
        """Refuse the present request with 403 unless its caller satisfies `rule`.

        `target` is what the request is about, by the names that rules have for it: by default it is
        the caller's own.
        """
        refusal = self._decide()(rule, g.caller, None if target is None else frozenset(target.items()))
        if refusal is not None:
            raise Forbidden(refusal)


def _decider(enforcer: oslo.Enforcer) -> Decide:
    """Return what decides by the rules of `enforcer`, and remembers its decisions.

    A check takes oslo.policy about 100 us, most of them to look at its own code, and says the same
    always. Only those that plug-ins bring, ``http:`` among them, may ask elsewhere.
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
        return None

    plugged_in = [f"{plugin.name}:" for plugin in entry_points(group="oslo.policy.rule_checks")]
    if any(kind in str(check) for check in enforcer.rules.values() for kind in plugged_in):
        return decide
    return lru_cache(DECISIONS)(decide)


def load(profile: str, file: Path | None) -> oslo.Enforcer:
    """Return what enforces a profile, but for the rules that a policy file has others for.

    Raises `SetupError` if the file cannot be used.
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
                log.warning("The policy file %s has a rule that nothing asks for: %s", file, name)
    enforcer.load_rules(force_reload=True)
    # Nothing is left to be loaded: the file is watched here, and its rules change all at once.
    enforcer.use_conf = False
    try:
        enforcer.check_rules(raise_on_violation=True)
    except oslo.InvalidDefinitionError as problem:
        raise SetupError(
            f"The policy file {file} has rules that lead to themselves or to none that exists: {problem}"
        ) from problem
    return enforcer


def _read(file: Path) -> dict[str, oslo.RuleDefault]:
    """Return the rules of a policy file by their names."""
    try:
        checks = oslo.parse_file_contents(file.read_text())
    except OSError as problem:
        raise SetupError(f"The policy file {file} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise SetupError(f"The policy file {file} is not YAML: {' '.join(str(problem).split())}") from problem
    if not isinstance(checks, dict):
        raise SetupError(f"The policy file {file} must map the names of rules to checks")
    return {name: _rule(file, name, check) for name, check in checks.items()}


def _rule(file: Path, name: object, check: object) -> oslo.RuleDefault:
    if not isinstance(name, str):
        raise SetupError(f"The policy file {file} has a name of a rule that is none: {name!r}")
    if isinstance(check, str):
        rule = oslo.RuleDefault(name, check)
        if NEVER in check or NEVER not in str(rule.check):
            return rule
    raise SetupError(f"The policy file {file} has a check for {name} that is none: {check!r}")
