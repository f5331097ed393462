"""An HTTP client that reads from a running Placement service: this one, or OpenStack Placement."""

import json
import re
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Any
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.util import parse_url

from placement_svc.domain.version_header import EXTENSIONS, PLACEMENT, VERSION_HEADER
from placement_svc.domain.wording import MAX_REASON_LENGTH, shorten, without_rule

MAX_BODY_BYTES = 512 * 1024 * 1024
"""The largest body of a response: a list of 700,000 resource providers."""

MAX_SECONDS = 900
"""Seconds in which a response must be complete, after any number of attempts."""

_CODES = re.compile(r"\[(SSL: \w+|Errno -?\d+)\] ")
"""The codes of OpenSSL and of the system in the text of an error."""

_USER_INFORMATION = re.compile(r"[^/?#]*//[^/?#]*@")
"""The start of a URL with a user or a password before its host."""

NO_TLS = "wrong version number"
"""What OpenSSL says about a response that is not encrypted."""


class ClientError(Exception):
    """A request has no usable response; the message gives the reason."""


class UnreachableError(ClientError):
    """The service did not respond; `reason` says why."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"GET {url} failed: {reason}")
        self.reason = reason


class StatusError(ClientError):
    """The service returned an error status; `reason` is the text of its error."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__(f"GET {url} returned {status}: {reason}")
        self.status = status
        self.reason = reason


class ServiceClient:
    """A client of one service with one token, which any number of threads can use."""

    def __init__(
        self, url: str, token: str, *, version: str = "", connections: int = 1, allows_stale: bool = False
    ) -> None:
        """Check the URL and the token; raises `ClientError`.

        `version` is what follows ``placement`` in the version header. If it names `EXTENSIONS`, responses
        of services without them are errors. With `allows_stale`, standbys may answer; each path must be one
        that knows the key `stale`.
        """
        if _USER_INFORMATION.match(url):
            # The URL is not quoted, because it may contain a password.
            raise ClientError("The service URL must not have a user or a password: name a token instead")
        if not url.startswith(("http://", "https://")):
            raise ClientError(f"{url} is not a service URL: it must begin with http:// or https://")
        try:
            # Unlike urllib3, the standard library says what is wrong with a port.
            _ = urlsplit(url).port
            has_host = bool(urlsplit(url).hostname)
        except ValueError as error:
            raise ClientError(f"{url} is not a service URL: {error}") from error
        if not has_host:
            raise ClientError(f"{url} is not a service URL: it has no host")
        if not {"?", "#"}.isdisjoint(url):
            # The path of each request is appended.
            raise ClientError(f"{url} is not a service URL: it must not contain ? or #")
        if not (token.strip() and token.isascii() and token.isprintable()):
            raise ClientError("The token is empty or has characters that HTTP does not allow")
        self.url = url.rstrip("/")
        # Every request is a GET, so a failed one can be repeated: a proxy or a restart may have caused the
        # failure.
        self._retry = urllib3.Retry(
            connect=1,
            read=4,
            status=4,
            # A TLS error, such as an untrusted certificate, is permanent.
            other=0,
            backoff_factor=0.5,
            status_forcelist=(502, 503, 504),
            raise_on_status=False,
            remove_headers_on_redirect=[*urllib3.Retry.DEFAULT_REMOVE_HEADERS_ON_REDIRECT, "X-Auth-Token"],
        )
        self._http = urllib3.PoolManager(
            maxsize=connections, block=True, timeout=urllib3.Timeout(connect=10, read=600)
        )
        self._headers = {"X-Auth-Token": token, "Accept": "application/json"}
        self._allows_stale = allows_stale
        self._needs_extensions = EXTENSIONS in version
        if version:
            self.select_version(version)

    def select_version(self, version: str) -> None:
        """Send `version` with all further requests."""
        self._headers[VERSION_HEADER] = f"{PLACEMENT} {version}"

    def get(self, path: str) -> Any:
        """Return the JSON of the response to GET `path`; raises `ClientError`."""
        url = f"{self.url}{path}"
        if self._allows_stale:
            url += f"{'&' if '?' in path else '?'}stale=ok"
        response, body = self._receive(url)
        lacks_extensions = EXTENSIONS not in response.headers.get(VERSION_HEADER, "")
        if self._needs_extensions and lacks_extensions and response.status in (200, 400, 404):
            raise ClientError(f"{self.url} is not {EXTENSIONS}, or a version of it that is too old")
        if response.status == 401:
            self._check_redirect(response, path)
        if response.status != 200:
            raise StatusError(url, response.status, _error_text(body))
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise ClientError(f"GET {url} returned a body that is not JSON") from None

    def _check_redirect(self, response: urllib3.BaseHTTPResponse, path: str) -> None:
        """Raise `ClientError` if the request for `path` was redirected to another server.

        That server does not get the token. The message has its URL without user, password and query.
        """
        url = self.url
        for attempt in response.retries.history if response.retries else ():
            url = urljoin(url, attempt.redirect_location or "")
        if self._http.connection_from_url(self.url).is_same_host(url):
            return
        parts = parse_url(url)
        base = (parts.path or "").removesuffix(path.partition("?")[0])
        target = parts._replace(auth=None, path=base, query=None, fragment=None).url
        raise ClientError(
            f"{self.url} redirects to {target}, and the token is not sent to another server: name {target}"
            " instead"
        )

    def _receive(self, url: str) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return the response to GET `url` with its body, if it is complete within `MAX_SECONDS`."""
        result: Future[tuple[urllib3.BaseHTTPResponse, bytes]] = Future()

        def run() -> None:
            try:
                result.set_result(self._request(url))
            except Exception as error:
                result.set_exception(error)

        # The timeouts of a socket start again with each byte. A daemon thread does not delay the exit.
        Thread(target=run, daemon=True).start()
        try:
            return result.result(MAX_SECONDS)
        except TimeoutError:
            raise UnreachableError(url, f"no complete response within {MAX_SECONDS} seconds") from None
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(url, _failure(error)) from error

    def _request(self, url: str) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return the response to GET `url` with its body; repeat requests as `self._retry` says."""
        retry = self._retry
        while True:
            with self._http.request(
                "GET", url, headers=self._headers, retries=retry, preload_content=False
            ) as response:
                try:
                    body = response.read(MAX_BODY_BYTES + 1)
                except urllib3.exceptions.HTTPError as error:
                    retry = (response.retries or retry).increment("GET", url, error=error)
                else:
                    if len(body) > MAX_BODY_BYTES:
                        raise ClientError(f"GET {url} returned more than {MAX_BODY_BYTES:,} bytes")
                    return response, body
            retry.sleep()


def _failure(error: urllib3.exceptions.HTTPError) -> str:
    """Return the reason of a failure in plain words, without the names of Python's objects."""
    reason = getattr(error, "reason", None) or error
    # Some errors of urllib3 have another error as their last argument.
    text = str(reason.args[-1]) if reason.args else str(reason)
    if NO_TLS in text:
        return "it does not use TLS: write http://"
    return _CODES.sub("", text).rpartition(": ")[2]


def _error_text(body: bytes) -> str:
    """Return the text of an error response, on one line."""
    text = body.decode(errors="replace")
    with suppress(ValueError, KeyError, IndexError, TypeError, AttributeError):
        # The first paragraph says no more than the status, but it can be the only one.
        detail = json.loads(text)["errors"][0]["detail"].strip().rpartition("\n\n")[2]
        text = without_rule(detail)
    return shorten(" ".join(text.split()), MAX_REASON_LENGTH)
