"""Callers known to Keystone, which is asked about each token (`docs/spec/http.md 14`)."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flask import Request, Response, abort, g
from oslo_config import cfg
from werkzeug.exceptions import ServiceUnavailable

from placement_svc.domain.errors import SetupError
from placement_svc.http.auth import Caller, Strategy, role_names

log = logging.getLogger(__name__)

GROUP = "keystone_authtoken"
"""The section of keystonemiddleware's settings."""

CONFIRMED = "204 No Content"
"""Status of the middleware's answer to a request whose token is good."""


def keystone(config_file: Path | None) -> Strategy:
    """Return the strategy that asks the Keystone which the settings of keystonemiddleware name.

    They are in the section `GROUP` of `config_file`, which is for oslo.config, and in variables such
    as ``OS_KEYSTONE_AUTHTOKEN__AUTH_URL``, which win. Raises `SetupError` when they name none, and
    when keystonemiddleware is not installed.
    """
    try:
        from keystoneauth1.exceptions import ClientException
        from keystonemiddleware.auth_token import AuthProtocol, list_opts
        from keystonemiddleware.exceptions import ConfigurationError
    except ImportError:
        raise SetupError(
            "PLACEMENT_AUTH=keystone needs keystonemiddleware: pip install 'placement-svc[keystone]'"
        ) from None
    try:
        config = _config(config_file)
        for group, options in list_opts():
            config.register_opts(options, group=group)
        if not (config[GROUP].auth_type or config[GROUP].auth_section):
            raise SetupError(
                f"Keystone needs auth_type, auth_url and so on in [{GROUP}] or in the environment"
            )
        # Left to itself a request without a good token would come through.
        config.set_override("delay_auth_decision", False, GROUP)
        middleware = AuthProtocol(_confirm, {"oslo_config_config": config})
    except (cfg.Error, ClientException, ConfigurationError, ValueError) as problem:
        raise SetupError(f"The settings of Keystone cannot be used: {problem}") from problem

    def identify(asked: Request) -> Caller:
        """Return whom Keystone knows by the token of `asked`.

        Raises Keystone's refusal, a 401 in its own form, and `ServiceUnavailable` when it cannot be
        asked.
        """
        try:
            answer = Response.from_app(middleware, asked.environ, buffered=True)
        except ClientException as problem:
            log.error("Keystone cannot be asked: %s", problem)
            raise ServiceUnavailable("Keystone cannot be asked.") from problem
        if answer.status_code == 401:
            abort(answer)
        if answer.status != CONFIRMED:
            raise ServiceUnavailable("Keystone cannot be asked.")
        user = g.keystone_user
        return Caller(
            user_id=user.user_id,
            project_id=user.project_id,
            roles=role_names(user.role_names),
            domain_id=user.domain_id,
            system_scope="all" if user.system_scoped else None,
        )

    return Strategy(identify)


def _config(file: Path | None) -> cfg.ConfigOpts:
    config = cfg.ConfigOpts()
    config(
        [],
        project="placement-svc",
        default_config_files=[str(file)] if file else [],
        default_config_dirs=[],
    )
    return config


def _confirm(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Stand behind the middleware as the application that only confirmed requests reach."""
    g.keystone_user = environ["keystone.token_auth"].user
    start_response(CONFIRMED, [])
    return ()
