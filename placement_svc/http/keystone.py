"""Authentication by Keystone (`PLACEMENT_AUTH=keystone`), see `docs/spec/http.md 14`."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from flask import Request, Response, abort, g
from oslo_config import cfg

from placement_svc.domain.errors import SetupError, Unavailable
from placement_svc.http.auth import AuthStrategy, Caller, role_names
from placement_svc.schemas.keystone import InvalidDescription, check_token

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

MAX_ASKING = 30
"""Requests of a process that may wait for Keystone, each in a thread; a further one gets 503."""

SPARE_TIMEOUTS = 2
"""The time limit of a token check is `http_connect_timeout` times its retries and this number.

A check that succeeds can take three requests; one that fails, all attempts for one of them.
"""

UNAVAILABLE = "Keystone is unavailable."

CANNOT_BE_UNDERSTOOD = "The response of Keystone cannot be understood."

CONFIRMED = "204 No Content"
"""Status of the middleware's response to a request whose token is valid."""


def keystone_strategy(config_file: Path | None) -> AuthStrategy:
    """Return the authentication method that validates tokens with Keystone.

    The settings of keystonemiddleware are in the section `GROUP` of `config_file`, an oslo.config file,
    and in environment variables such as ``OS_KEYSTONE_AUTHTOKEN__AUTH_URL``, which take precedence.
    Raises `SetupError` if they are incomplete or invalid, and if a package that they need is not installed.
    """
    try:
        from keystoneauth1.exceptions import ClientException
        from keystonemiddleware.auth_token import AuthProtocol
        from keystonemiddleware.exceptions import ConfigurationError

        from placement_svc.http.keystone_transport import new_session
    except ImportError:
        raise SetupError(
            "PLACEMENT_AUTH=keystone needs keystonemiddleware: pip install 'placement-svc[keystone]'"
        ) from None
    try:
        config = read_settings(config_file)
        if not (config[GROUP].auth_type or config[GROUP].auth_section):
            raise SetupError(
                f"PLACEMENT_AUTH=keystone needs auth_type, auth_url and so on in [{GROUP}] of"
                " PLACEMENT_KEYSTONE_FILE, or in the environment"
            )
        if config[GROUP].memcached_servers and find_spec("memcache") is None:
            raise SetupError(
                "memcached_servers of Keystone needs python-memcached: pip install 'placement-svc[keystone]'"
            )
        # With a delayed decision, the middleware would let requests without a valid token through.
        config.set_override("delay_auth_decision", False, GROUP)
        middleware = AuthProtocol(_confirm, {"oslo_config_config": config})
        # The middleware has no public hooks for its connections, nor between its cache and Keystone.
        middleware._session.session = new_session()
        identity_server = middleware._identity_server
        ask = _validated(identity_server.verify_token, partial(_forget, middleware))
        identity_server.verify_token = _bounded(ask, check_timeout(config))
    except (cfg.Error, ClientException, ConfigurationError, ValueError, OSError) as error:
        raise SetupError(f"The settings of Keystone cannot be used: {error}") from error

    def identify(request: Request) -> Caller:
        """Return the caller to whom Keystone issued the token of `request`.

        Aborts with the middleware's own 401 if the token is invalid. Raises `Unavailable` if Keystone cannot
        be reached, if its response is malformed, or if too many requests wait for it.
        """
        try:
            response = Response.from_app(middleware, request.environ, buffered=True)
        except ClientException as error:
            raise _unreachable(error) from error
        if response.status_code == 401:
            abort(response)
        if response.status != CONFIRMED:
            raise Unavailable(UNAVAILABLE)
        return _to_caller(g.keystone_user)

    return AuthStrategy(identify)


def _bounded(verify_token: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Return a `verify_token` of keystonemiddleware that at most `MAX_ASKING` requests run at a time.

    Each run ends after so many seconds. Other requests have the slot of the request while it waits for
    Keystone. It raises `Unavailable` if Keystone cannot be reached.
    """
    from keystoneauth1.exceptions import ClientException

    from placement_svc.http.keystone_transport import time_limit

    asking = BoundedSemaphore(MAX_ASKING)

    def ask(token: str, retry: bool = True, **options: Any) -> Any:
        if not retry:
            # keystonemiddleware repeats a call within the first one, if Keystone rejects the service.
            return verify_token(token, retry, **options)
        if not asking.acquire(blocking=False):
            raise Unavailable(f"{UNAVAILABLE} Too many requests wait for it.")
        try:
            g.deadline.pause()
            with time_limit(seconds):
                data = verify_token(token, **options)
        except ClientException as error:
            raise _unreachable(error) from error
        finally:
            asking.release()
            g.deadline.resume()
        return data

    return ask


def _validated(verify_token: Callable[..., Any], forget: Callable[[], None]) -> Callable[..., Any]:
    """Return a `verify_token` of keystonemiddleware that checks Keystone's responses.

    It raises `Unavailable` if a response is malformed, so only well-formed ones get into the cache of tokens.
    `forget` drops what keystoneauth keeps, which does not check it.
    """
    from keystoneauth1.exceptions import CatalogException, ClientException, DiscoveryFailure
    from keystonemiddleware.auth_token import InvalidToken, ServiceError

    def ask(token: str, *args: Any, **options: Any) -> Any:
        try:
            data = verify_token(token, *args, **options)
            check_token(data["token"])
        except (CatalogException, DiscoveryFailure):
            # Keystone may have returned wrong addresses or versions.
            forget()
            raise
        except (ClientException, InvalidToken, ServiceError):
            raise
        except InvalidDescription as error:
            log.error("Keystone's description of a token is malformed: %s", error)
            raise Unavailable(CANNOT_BE_UNDERSTOOD) from error
        except Exception as error:
            log.error("A response of Keystone is malformed: %s: %s", type(error).__name__, error)
            forget()
            raise Unavailable(CANNOT_BE_UNDERSTOOD) from error
        return data

    return ask


def _unreachable(error: Exception) -> Unavailable:
    """Log that Keystone cannot be reached, and return the error of the request."""
    log.error("Keystone cannot be reached: %s", error)
    return Unavailable(UNAVAILABLE)


def _forget(middleware: Any) -> None:
    """Drop the service's own token, and the versions and addresses of Keystone's API."""
    middleware._identity_server.invalidate()
    for keeper in (middleware._auth, middleware._session):
        keeper._discovery_cache.clear()


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


def check_timeout(config: cfg.ConfigOpts) -> float:
    """Return the seconds after which a token check ends, according to settings of keystonemiddleware."""
    settings = config[GROUP]
    seconds: float = settings.http_connect_timeout * (settings.http_request_max_retries + SPARE_TIMEOUTS)
    return seconds


def _confirm(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Act as the WSGI application behind the middleware, which only authenticated requests reach."""
    g.keystone_user = environ["keystone.token_auth"].user
    start_response(CONFIRMED, [])
    return ()
