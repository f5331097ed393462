"""The hosts whose requests are accepted, which protects against DNS rebinding (`docs/spec/http.md 14`).

A web page may come from a name that its owner later resolves to the address of this service. A browser then
treats the service as the page's own server: it lets the page send any request and read the response. The
`Host` header of these requests is the name of the page. A page cannot have an IP address as its host in this
way, because no resolver is asked for it.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from wsgiref.types import WSGIEnvironment

from werkzeug.exceptions import HTTPException

from placement_svc.domain.wording import shorten
from placement_svc.http.proxy import PATTERNS, RECEIVED_HOST

MAX_QUOTED = 100
"""The most characters of a host that an error quotes."""

DECISION_CACHE_SIZE = 100
"""How many decisions a process caches; most requests are for the same few hosts."""

_ABSOLUTE_TARGET = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?([^/?#]*)", re.IGNORECASE)
"""A request target that is not a path, such as ``http://host/path``; its group is the host with the port."""


class MisdirectedRequest(HTTPException):
    """A request is for a host that is not allowed (RFC 9110, section 15.5.20)."""

    code = 421


@dataclass(frozen=True)
class AllowedHosts:
    """The hosts whose requests are accepted: `localhost`, the loopback addresses, and `names`.

    A name that begins with a dot allows all names with this suffix and the name without the dot. The name
    ``*`` allows every host. `any_address` allows every IP address. Ports are ignored.
    """

    names: Collection[str] = ()
    any_address: bool = False

    def check(self, environ: WSGIEnvironment) -> None:
        """Raise `MisdirectedRequest` unless every host that a request names is allowed."""
        for host in _named_hosts(environ):
            if not self._decide(host):
                quoted = f"the host {shorten(host, MAX_QUOTED)}" if host else "requests without a host"
                raise MisdirectedRequest(
                    f"The service does not accept {quoted}. It accepts localhost, loopback addresses and the"
                    " hosts that PLACEMENT_ALLOWED_HOSTS names."
                )

    @cached_property
    def _decide(self) -> Callable[[str], bool]:
        return lru_cache(DECISION_CACHE_SIZE)(self._allows)

    def _allows(self, host: str) -> bool:
        if "*" in self.names:
            return True
        name = _normalized(host)
        if name is None:
            return False
        address = _address(name)
        if address is not None and (self.any_address or address.is_loopback):
            return True
        return name == "localhost" or name in self._exact or f".{name}".endswith(self._suffixes)

    @cached_property
    def _exact(self) -> frozenset[str | None]:
        return frozenset(_normalized(name) for name in self.names)

    @cached_property
    def _suffixes(self) -> tuple[str, ...]:
        return tuple(name.lower().rstrip(".") for name in self.names if name.startswith("."))


def _named_hosts(environ: WSGIEnvironment) -> Iterator[str]:
    """Yield each host of a request with its port: of its headers, and of a target with a scheme.

    Behind a proxy, the header that the proxy sent counts too: without a proxy, a page may send
    `X-Forwarded-Host` itself.
    """
    yield environ.get("HTTP_HOST", "")
    if RECEIVED_HOST in environ:
        yield environ[RECEIVED_HOST]
    target: str = environ.get("RAW_URI") or environ.get("REQUEST_URI") or "/"
    if not target.startswith("/") and target != "*" and (match := _ABSOLUTE_TARGET.match(target)):
        yield match[1]


def _normalized(host: str) -> str | None:
    """Return a host without its port, in lower case and without a final dot; None if it is malformed."""
    match = PATTERNS["host"].fullmatch(host)
    if match is None:
        return None
    name = match[1].lower()
    if not name.startswith("["):
        return name.removesuffix(".")
    try:
        return f"[{IPv6Address(name[1:-1])}]"
    except AddressValueError:
        return None


def _address(name: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a normalized host is, None if it is a name."""
    if name.startswith("["):
        address = IPv6Address(name[1:-1])
        return address.ipv4_mapped or address
    try:
        return IPv4Address(name)
    except AddressValueError:
        return None
