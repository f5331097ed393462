"""Authentication by Keystone (`PLACEMENT_AUTH=keystone`), see `docs/spec/http.md 14`."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flask import Request, Response, abort, g
from oslo_config import cfg
from werkzeug.exceptions import ServiceUnavailable

from placement_svc.domain.errors import SetupError
from placement_svc.http.auth import AuthStrategy, Caller, role_names

log = logging.getLogger(__name__)

GROUP = "keystone_authtoken"
"""The section of a configuration file that has the settings of keystonemiddleware."""

CONNECT_TIMEOUT = 5
"""Seconds without a response of Keystone after which a request to it fails, unless the operator sets it.

The option `http_connect_timeout` limits connecting and each wait for data. By default, it has no limit.
"""

MAX_RETRIES = 1
"""Repetitions of a failed request to Keystone (`http_request_max_retries`), unless the operator sets it.

One is enough for a connection that a restarted Keystone has closed.
"""

CONFIRMED = "204 No Content"
"""Status of the middleware's response to a request whose token is valid."""


def keystone_strategy(config_file: Path | None) -> AuthStrategy:
    """Return the authentication method that validates tokens with Keystone.

    The settings of keystonemiddleware are in the section `GROUP` of `config_file`, an oslo.config file,
    and in environment variables such as ``OS_KEYSTONE_AUTHTOKEN__AUTH_URL``, which take precedence.
    Raises `SetupError` if they are incomplete or invalid, and if keystonemiddleware is not installed.
    """
    try:
        from keystoneauth1.exceptions import ClientException
        from keystonemiddleware.auth_token import AuthProtocol
        from keystonemiddleware.exceptions import ConfigurationError
    except ImportError:
        raise SetupError(
            "PLACEMENT_AUTH=keystone needs keystonemiddleware: pip install 'placement-svc[keystone]'"
        ) from None
    try:
        config = read_settings(config_file)
        if not (config[GROUP].auth_type or config[GROUP].auth_section):
            raise SetupError(
                f"Keystone needs auth_type, auth_url and so on in [{GROUP}] or in the environment"
            )
        # With a delayed decision, the middleware would let requests without a valid token through.
        config.set_override("delay_auth_decision", False, GROUP)
        middleware = AuthProtocol(_confirm, {"oslo_config_config": config})
    except (cfg.Error, ClientException, ConfigurationError, ValueError) as error:
        raise SetupError(f"The settings of Keystone cannot be used: {error}") from error

    def identify(request: Request) -> Caller:
        """Return the caller to whom Keystone issued the token of `request`.

        Aborts with the middleware's own 401 if the token is invalid. Raises `ServiceUnavailable` if
        Keystone cannot be reached.
        """
        try:
            response = Response.from_app(middleware, request.environ, buffered=True)
        except ClientException as error:
            log.error("Keystone cannot be reached: %s", error)
            raise ServiceUnavailable("Keystone cannot be asked.") from error
        if response.status_code == 401:
            abort(response)
        if response.status != CONFIRMED:
            raise ServiceUnavailable("Keystone cannot be asked.")
        return _to_caller(g.keystone_user)

    return AuthStrategy(identify)


def _to_caller(user: Any) -> Caller:
    """Return the caller that keystonemiddleware describes as `user`."""
    return Caller(
        user_id=user.user_id,
        project_id=user.project_id,
        roles=role_names(user.role_names),
        domain_id=user.domain_id,
        system_scope="all" if user.system_scoped else None,
    )


def read_settings(file: Path | None) -> cfg.ConfigOpts:
    """Return the settings of keystonemiddleware from `file` and the environment, with our defaults."""
    from keystonemiddleware.auth_token import list_opts

    config = cfg.ConfigOpts()
    config(
        [],
        project="placement-svc",
        default_config_files=[str(file)] if file else [],
        default_config_dirs=[],
    )
    for group, options in list_opts():
        config.register_opts(options, group=group)
    config.set_default("http_connect_timeout", CONNECT_TIMEOUT, GROUP)
    config.set_default("http_request_max_retries", MAX_RETRIES, GROUP)
    return config


def _confirm(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Act as the WSGI application behind the middleware, which only authenticated requests reach."""
    g.keystone_user = environ["keystone.token_auth"].user
    start_response(CONFIRMED, [])
    return ()
