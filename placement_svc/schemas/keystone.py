"""The description of a token that Keystone returns, as far as keystonemiddleware reads it."""

from datetime import UTC, datetime
from typing import Any

from marshmallow import INCLUDE, Schema, ValidationError, fields


def _check_comparable(time: datetime) -> None:
    try:
        time.astimezone(UTC)
    except OverflowError:
        raise ValidationError("Not a valid datetime.") from None


class _Open(Schema):
    """An object that may have further keys."""

    class Meta:
        unknown = INCLUDE


class _Named(_Open):
    id = fields.String(required=True)
    name = fields.String(required=True)


class _OwnedByDomain(_Named):
    domain = fields.Nested(_Named, required=True)


class _Endpoint(_Open):
    interface = fields.String(required=True)
    url = fields.String(required=True)


class _Service(_Open):
    type = fields.String(required=True)
    endpoints = fields.List(fields.Nested(_Endpoint))


class _Token(_Open):
    expires_at = fields.DateTime("iso", required=True, validate=_check_comparable)
    user = fields.Nested(_OwnedByDomain, required=True)
    project = fields.Nested(_OwnedByDomain, allow_none=True)
    domain = fields.Nested(_Named, allow_none=True)
    system = fields.Dict()
    roles = fields.List(fields.Nested(_Named))
    catalog = fields.List(fields.Nested(_Service))
    bind = fields.Dict(allow_none=True)
    application_credential = fields.Dict(allow_none=True)


class InvalidDescription(Exception):
    """The description of a token is not as keystonemiddleware needs it; the message names the parts."""


def check_token(description: Any) -> None:
    """Raise `InvalidDescription` unless keystonemiddleware can read the description of a token."""
    errors = _TOKEN.validate(description)
    if errors:
        raise InvalidDescription(f"{errors}")


_TOKEN = _Token()
