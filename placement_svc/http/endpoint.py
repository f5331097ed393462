"""The checks that a request passes before its view runs (`docs/spec/http.md 5`, steps 9 and 10)."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flask import g, request
from werkzeug.exceptions import HTTPException, NotAcceptable, NotFound, UnsupportedMediaType

from placement_svc.domain.errors import Invalid
from placement_svc.domain.limits import MAX_ID_LENGTH
from placement_svc.domain.version_header import PLACEMENT, VERSION_HEADER
from placement_svc.http.accept import JSON, accepts_json
from placement_svc.http.microversion import OLDEST, allows_extensions, current, is_requested, since
from placement_svc.http.policy import enforce
from placement_svc.schemas.query import parse_pairs

View = Callable[..., Any]

_INFO = "endpoint_info"
"""The attribute of a view that holds its `EndpointInfo`."""


@dataclass(frozen=True)
class EndpointInfo:
    """The declaration of an endpoint.

    `rule` is the policy rule that the caller must satisfy, without its prefix, and None for an endpoint
    that needs no token. `introduced` is the version that introduced the endpoint: a microversion of
    Placement, or with `is_extension` a version of the extensions. `may_be_stale`: whether a standby answers
    a request with the key `stale`.
    """

    rule: str | None
    introduced: str
    is_extension: bool = False
    may_be_stale: bool = False


def get_info(view: View) -> EndpointInfo | None:
    """Return the declaration of a view, None if it has neither `endpoint` nor `public_endpoint`."""
    info: EndpointInfo | None = getattr(view, _INFO, None)
    return info


def public_endpoint(*, introduced: str = "") -> Callable[[View], View]:
    """Declare a view that needs no token and that no policy rule protects."""

    def decorate(view: View) -> View:
        setattr(view, _INFO, EndpointInfo(rule=None, introduced=introduced))
        return view

    return decorate


def endpoint(
    rule: str,
    *,
    introduced: str = "",
    is_extension: bool = False,
    reads_json: bool | Callable[[], bool] = False,
    checks_accept: bool = False,
    media_first: bool = False,
    error_before: type[HTTPException] = NotFound,
    project_from_query: bool = False,
    may_be_stale: bool = False,
) -> Callable[[View], View]:
    """Declare a view and protect it with the checks that the declaration implies.

    - `rule`: the policy rule that the caller must satisfy, without its prefix.
    - `introduced`: the microversion that introduced the endpoint. `openapi.registry` rejects an endpoint
      that does not name one.
    - `is_extension`: whether a version of the extensions (`docs/spec/extensions.md 1`) introduced the
      endpoint. `introduced` is then that version, and `pipeline` checks whether the request may use it.
    - `error_before`: the error that requests get at an older microversion.
    - `reads_json`: whether the request needs a JSON body; a function if that depends on the request.
    - `checks_accept`: whether the `Accept` header must allow JSON.
    - `media_first`: check the media types before the microversion instead of after it.
    - `project_from_query`: apply the policy rule to the `project_id` of the query instead of the
      caller's own project.
    - `may_be_stale`: whether the query may have the key `stale`, if the request may use extensions.
    """

    def check_version() -> None:
        if not is_extension and not since(introduced):
            raise error_before(description=_too_old(introduced))

    def check_media_types() -> None:
        if checks_accept:
            _check_accept()
        if reads_json() if callable(reads_json) else reads_json:
            _check_content_type()

    checks = (check_media_types, check_version) if media_first else (check_version, check_media_types)

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def protected(**path: str) -> Any:
            for check in checks:
                check()
            target = _queried_project() if project_from_query else None
            enforce(rule, target)
            g.knows_stale = may_be_stale and (is_extension or allows_extensions())
            return view(**path)

        setattr(protected, _INFO, EndpointInfo(rule, introduced, is_extension, may_be_stale))
        return protected

    return decorate


def _too_old(introduced: str) -> str:
    """Return the text of the error for a request at a microversion older than `introduced`."""
    if is_requested():
        applied = f"The request selects microversion {current()}"
    else:
        applied = f"Microversion {OLDEST} applies because the request names none"
    return (
        f"This request needs microversion {introduced} or later. {applied}:"
        f" send the header {VERSION_HEADER}: {PLACEMENT} {introduced}."
    )


def _check_accept() -> None:
    if not accepts_json(request.headers.get("Accept")):
        raise NotAcceptable("Only application/json is provided")


def _check_content_type() -> None:
    sent = request.headers.get("Content-Type")
    if sent is None or sent.split(";")[0].strip(" \t") != JSON:
        raise UnsupportedMediaType(f"The media type {sent} is not supported, use application/json")


def _queried_project() -> Mapping[str, str]:
    """Return the `project_id` of the query as the policy target; the last value of a repeated key counts.

    A query that cannot be parsed, or whose id is too long, names no project: the view rejects it, but not
    before the policy is applied, whose decisions are kept with their targets.
    """
    try:
        pairs = parse_pairs(request.query_string)
    except Invalid:
        return {}
    project_id = dict(pairs).get("project_id")
    return {} if project_id is None or len(project_id) > MAX_ID_LENGTH else {"project_id": project_id}
