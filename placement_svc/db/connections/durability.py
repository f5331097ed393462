"""The durability of commits: whether they wait for the disk of the primary, and for standbys."""

import re
from dataclasses import dataclass

from sqlalchemy import Connection, text

# Without the role pg_monitor, a session sees the rows of pg_stat_replication, but not their `sync_state`.
_DURABILITY = text("""
    SELECT current_setting('synchronous_commit') AS synchronous_commit,
           current_setting('synchronous_standby_names') AS standby_names,
           count(*) AS connected,
           count(sync_state) AS visible,
           count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous
      FROM pg_stat_replication
""")

_NUMBER = re.compile(r"\s*(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", re.IGNORECASE)
"""The number of standbys in a value of `synchronous_standby_names` such as ANY 1 (a, b)."""

_STANDBY_STATES = {"remote_write": "in the memory of", "on": "on disk of", "remote_apply": "visible on"}
"""Where a commit is on the synchronous standbys, by the `synchronous_commit` that waits for them."""


@dataclass(frozen=True)
class Durability:
    """How durable a commit is.

    A commit waits for `required` synchronous standbys. `connected` is the number of standbys that can be
    waited for, None if the role of the service may not see it.
    """

    synchronous_commit: str
    required: int
    connected: int | None

    def __str__(self) -> str:
        if self.synchronous_commit == "off":
            return "not yet on disk when acknowledged (synchronous_commit=off)"
        if self.required == 0:
            return f"on disk of the primary only (synchronous_commit={self.synchronous_commit})"
        state = _STANDBY_STATES[self.synchronous_commit]
        standbys = "standby" if self.required == 1 else "standbys"
        connected = "unknown number" if self.connected is None else self.connected
        return (
            f"on disk of the primary, and {state} {self.required} synchronous {standbys} ({connected}"
            f" connected, synchronous_commit={self.synchronous_commit})"
        )

    def problem(self) -> str | None:
        """Return why a commit is not sure to be on a synchronous standby or cannot end, None if neither."""
        if self.required == 0:
            return (
                "Commits do not wait for a synchronous standby, which PLACEMENT_REQUIRE_SYNC=1 requires: set"
                " synchronous_standby_names, and synchronous_commit to on, remote_write or remote_apply."
            )
        if self.connected is not None and self.connected < self.required:
            return (
                f"Commits wait for synchronous standbys: {self.required} required,"
                f" {self.connected} connected. Start the standbys that synchronous_standby_names lists."
            )
        return None


def read_durability(connection: Connection) -> Durability:
    """Return how durable the commits of this service are on the primary."""
    row = connection.execute(_DURABILITY).one()
    required = 0
    if row.standby_names.strip() and row.synchronous_commit in _STANDBY_STATES:
        number = _NUMBER.match(row.standby_names)
        required = int(number[1]) if number else 1
    # A role sees the states of all standbys or of none.
    is_visible = row.visible == row.connected
    return Durability(row.synchronous_commit, required, row.synchronous if is_visible else None)
