"""Sessions: the token of a caller, in a signed cookie that ends."""

from datetime import timedelta

from flask import Response, request
from itsdangerous import BadSignature, URLSafeTimedSerializer

COOKIE = "placement_console"

STARTED = "placement_session_started"
"""The cookie that outlives a session, so that the log-in form can say that it has ended."""

LIFETIME = timedelta(hours=8)
"""The time after which a caller has to log in again; the token may expire before that."""


class Sessions:
    """Reads and writes the session cookies that `secret` signs."""

    def __init__(self, secret: str) -> None:
        self._serializer = URLSafeTimedSerializer(secret, salt="placement-svc console session")

    def token(self) -> str | None:
        """Return the token in the session of the current request; None without a valid session."""
        cookie = request.cookies.get(COOKIE)
        if not cookie:
            return None
        try:
            token: object = self._serializer.loads(cookie, max_age=int(LIFETIME.total_seconds()))
        except BadSignature:
            return None
        return token if isinstance(token, str) else None

    def has_ended(self) -> bool:
        """Return whether this browser has had a session, and its caller has not logged out.

        The browser deletes the cookie of a session that has ended.
        """
        return STARTED in request.cookies

    def start(self, response: Response, token: str) -> None:
        """Set the cookie of a session with `token`."""
        set_cookie(response, COOKIE, str(self._serializer.dumps(token)), LIFETIME)
        set_cookie(response, STARTED, "1")

    def end(self, response: Response) -> None:
        """Delete the cookie of the session."""
        for cookie in (COOKIE, STARTED):
            set_cookie(response, cookie, "", timedelta(0))


def set_cookie(response: Response, name: str, value: str, lifetime: timedelta | None = None) -> None:
    """Set a cookie that only the console gets, and that no script and no other site can use.

    Without `lifetime`, it ends with the browser.
    """
    response.set_cookie(
        name,
        value,
        max_age=lifetime,
        path=f"{request.script_root}/console",
        secure=request.is_secure,
        httponly=True,
        samesite="Strict",
    )
