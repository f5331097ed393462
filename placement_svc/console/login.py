"""Authentication: the log-in form, and the token of the session in place of a header."""

import re
import secrets
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from flask import Blueprint, Response, current_app, g, redirect, render_template, request, url_for
from werkzeug.exceptions import Forbidden, HTTPException

from placement_svc.api.context import settings
from placement_svc.console.sessions import Sessions, set_cookie
from placement_svc.domain.errors import Unavailable
from placement_svc.http import auth
from placement_svc.http.accept import prefers_html
from placement_svc.http.auth import AuthStrategy

bp = Blueprint("login", __name__)

TOKEN_KEY = "HTTP_X_AUTH_TOKEN"
"""The key of the WSGI environment for the header with the token."""

NOAUTH_TOKEN = "admin"
"""The token of all requests that name none, with `PLACEMENT_AUTH=noauth`."""

MAX_TOKEN_LENGTH = 2800
"""The longest token that fits into a cookie: browsers store 4,096 bytes."""

FORM_COOKIE = "placement_console_form"
"""The cookie that a posted form must repeat, so that no other site can post it."""

_REASONS = {
    "session": (
        "Your session has ended. It lasts eight hours, and ends when the service restarts"
        " without PLACEMENT_CONSOLE_SECRET."
    ),
    "token": "Your token has expired or has been revoked.",
}
"""Why a caller with a session has to log in again, by the value of `reason`."""

_FOREIGN_FORM = "This form has expired, or another site has sent it."

_NEXT = re.compile(r"/console(?:/[^\x00-\x20\\?#]*)?(?:[?#][^\x00-\x20]*)?")
"""A page of the console, relative to the mount point.

Browsers read a backslash in a path as a slash, but not in a query or fragment.
"""


def authenticate(strategy: AuthStrategy, sessions: Sessions, *, uses_noauth: bool) -> Response | None:
    """Set `g.caller`, or return a redirect to the log-in form.

    The token is that of the header, or else that of the session.
    """
    g.has_session = False
    if TOKEN_KEY not in request.environ:
        token = NOAUTH_TOKEN if uses_noauth else sessions.token()
        if token is None:
            return _to_form("session" if sessions.has_ended() else None)
        request.environ[TOKEN_KEY] = token
        g.has_session = not uses_noauth
    try:
        auth.authenticate(strategy)
    except HTTPException as error:
        if not is_unauthorized(error) or not g.has_session:
            raise
        return _to_form("token")
    return None


def is_unauthorized(error: HTTPException) -> bool:
    """Return whether an error means that the token is missing or invalid."""
    return error.code == 401 or (error.response is not None and error.response.status_code == 401)


def _to_form(reason: str | None) -> Response:
    """Return the redirect to the log-in form, which shows `reason`, or a 401 for a script."""
    is_data = request.path.endswith((".json", ".csv"))
    if is_data and not prefers_html(request.headers.get("Accept")):
        return Response("Log in first.\n", status=401, content_type="text/plain; charset=UTF-8")
    query = f"next={quote(_requested_page())}"
    if reason:
        query = f"reason={reason}&{query}"
    return redirect(f"{url_for('login.show')}?{query}", 303)  # type: ignore[return-value]


def _requested_page() -> str:
    """Return the path and query of the current request; the overview if there is no page at its path."""
    requested = request.full_path.rstrip("?")
    return requested if request.method in ("GET", "HEAD") or _leads_to_page(requested) else "/console"


def form_token() -> str:
    """Return the value that the forms of the current page repeat."""
    if "form_token" not in g:
        g.form_token = request.cookies.get(FORM_COOKIE) or secrets.token_urlsafe()
    token: str = g.form_token
    return token


def _with_form_cookie(response: Response) -> Response:
    if "form_token" in g and request.cookies.get(FORM_COOKIE) != g.form_token:
        set_cookie(response, FORM_COOKIE, g.form_token)
    return response


bp.after_app_request(_with_form_cookie)


def _is_own_form() -> bool:
    """Return whether a page of this console posted the form."""
    sent, expected = request.form.get("form", ""), request.cookies.get(FORM_COOKIE, "")
    is_same_site = request.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")
    return is_same_site and bool(expected) and secrets.compare_digest(sent.encode(), expected.encode())


def _next_path() -> str:
    """Return the path and query of the page to show after the log-in."""
    sent = request.values.get("next", "")
    return sent if _NEXT.fullmatch(sent) and _leads_to_page(sent) else "/console"


def _leads_to_page(url: str) -> bool:
    """Return whether the console can show the path of a URL after the log-in."""
    try:
        endpoint, _ = current_app.url_map.bind("").match(unquote(urlsplit(url).path), "GET")
    except HTTPException:
        return False
    return bool(endpoint != "login.show")


@bp.get("/console/login")
def show() -> Any:
    """Show the log-in form."""
    if settings().auth == "noauth":
        return redirect(url_for("overview.show"), 303)
    return _form()


def _form(problem: str = "", status: int = 200) -> tuple[str, int]:
    page = render_template(
        "login.html",
        next=_next_path(),
        problem=problem,
        reason=_REASONS.get(request.args.get("reason", ""), ""),
        form_token=form_token(),
        auth=settings().auth,
    )
    return page, status


@bp.post("/console/login")
def submit() -> Any:
    """Start a session if the token is valid."""
    if not _is_own_form():
        # The forms of two tabs that were opened at the same time have different values.
        return _form(f"{_FOREIGN_FORM} Enter the token again.", 403)
    token = request.form.get("token", "").strip()
    if not token:
        return _form("Enter a token.", 400)
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii() or not token.isprintable():
        return _form(
            f"A token has at most {MAX_TOKEN_LENGTH:,} characters, and only printable ASCII characters.", 400
        )
    request.environ[TOKEN_KEY] = token
    strategy: AuthStrategy = current_app.extensions["auth_strategy"]
    try:
        auth.authenticate(strategy)
    except Unavailable as error:
        return _form(f"{error} Try again later.", 503)
    except HTTPException as error:
        if not is_unauthorized(error):
            raise
        return _form("This token is not valid, or it has expired.", 401)
    response = redirect(f"{request.script_root}{_next_path()}", 303)
    sessions().start(response, token)  # type: ignore[arg-type]
    return response


@bp.post("/console/logout")
def leave() -> Any:
    """End the session."""
    if not _is_own_form():
        raise Forbidden(f"{_FOREIGN_FORM} Load the page again.")
    response = redirect(url_for("login.show"), 303)
    sessions().end(response)  # type: ignore[arg-type]
    return response


def sessions() -> Sessions:
    """Return the sessions of the current application."""
    current: Sessions = current_app.extensions["sessions"]
    return current
