"""The weaker locks of rows, as arguments of `with_for_update`; without arguments, it means `FOR UPDATE`.

`docs/reliability.md` lists which transaction takes which lock.
"""

from typing import TypedDict


class RowLock(TypedDict, total=False):
    """The arguments of `with_for_update` that together select a lock."""

    read: bool
    key_share: bool


NO_KEY_UPDATE: RowLock = {"key_share": True}
"""`FOR NO KEY UPDATE`: others cannot change or delete the rows, and lock them only by `FOR KEY SHARE`."""

KEY_SHARE: RowLock = {"read": True, "key_share": True}
"""`FOR KEY SHARE`: others can neither delete the rows nor change their unique columns, such as names."""
