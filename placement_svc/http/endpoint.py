"""The gates that a request passes before its endpoint sees it (`docs/spec/http.md 5`, step 9 and 10)."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flask import current_app, request
from werkzeug.exceptions import HTTPException, NotAcceptable, NotFound, UnsupportedMediaType

from placement_svc.http.accept import JSON, accepts_json
from placement_svc.http.microversion import OLDEST, since
from placement_svc.http.rules import PREFIX

View = Callable[..., Any]


@dataclass(frozen=True)
class Facts:
    """What the description of the API tells of an endpoint; its guarded view has them as `facts`.

    `rule` is the policy rule that the caller must satisfy, `introduced` the microversion that brought it.
    """

    rule: str
    introduced: str


def _check_accept() -> None:
    if not accepts_json(request.headers.get("Accept")):
        raise NotAcceptable("Only application/json is provided")


def _check_content_type() -> None:
    sent = request.headers.get("Content-Type")
    if sent is None or sent.split(";")[0].strip() != JSON:
        raise UnsupportedMediaType(f"The media type {sent} is not supported, use application/json")


def endpoint(
    rule: str,
    *,
    introduced: str = OLDEST,
    reads_json: bool | Callable[[], bool] = False,
    checks_accept: bool = False,
    media_first: bool = False,
    unintroduced: type[HTTPException] = NotFound,
    target: Callable[[], Mapping[str, str]] | None = None,
) -> Callable[[View], View]:
    """Guard a view by what its endpoint is.

    `rule` is the policy rule that the caller must satisfy, `introduced` the microversion that
    brought the endpoint (before it: `unintroduced`). `reads_json` says that it wants a JSON body
    (or tells when it does), `checks_accept` that it answers nothing but JSON. With `media_first`
    these two are checked before the microversion. `target` tells what the request is about, where
    that matters to the rule.
    """

    def check_version() -> None:
        if not since(introduced):
            raise unintroduced()

    def check_media() -> None:
        if checks_accept:
            _check_accept()
        if reads_json() if callable(reads_json) else reads_json:
            _check_content_type()

    gates = (check_media, check_version) if media_first else (check_version, check_media)

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def guarded(**path: str) -> Any:
            for gate in gates:
                gate()
            current_app.extensions["policy"].enforce(f"{PREFIX}{rule}", target and target())
            return view(**path)

        guarded.facts = Facts(rule, introduced)  # type: ignore[attr-defined]
        return guarded

    return decorate
