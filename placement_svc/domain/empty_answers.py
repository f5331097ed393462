"""Searches for allocation candidates that found none (`docs/spec/extensions.md 3.7`)."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class EmptyAnswer:
    """A request for allocation candidates whose response had none.

    `user_id` and `project_id` are those of the caller, None if they are not verified.
    """

    uuid: str
    created_at: datetime
    query: str
    request_id: str
    global_request_id: str | None
    user_id: str | None
    project_id: str | None
