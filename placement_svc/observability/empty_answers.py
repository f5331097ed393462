"""Storing the searches for allocation candidates that found none, outside of their requests.

An operator finds last night's "no valid host" by its request id, and explains it
(`docs/spec/extensions.md 3.7`).
"""

import logging
from collections import deque
from datetime import UTC, datetime
from threading import Lock, Thread, Timer
from time import monotonic
from uuid import uuid4

from sqlalchemy.exc import DBAPIError

from placement_svc.db import empty_answers
from placement_svc.db.connections.engine import Database
from placement_svc.domain.empty_answers import EmptyAnswer
from placement_svc.domain.errors import PlacementError
from placement_svc.observability.access_log import CompletedRequest

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
"""The least time between two inserts of a process."""

STOP_SECONDS = 2.0
"""Seconds that a process that stops waits for its last insert."""

MAX_PENDING = 1000
"""The most answers of one insert; further ones replace the oldest of them."""

MAX_QUERY_LENGTH = 8000
"""The most characters of a query that are stored."""


class EmptyAnswerRecorder:
    """Stores empty answers in batches, by a thread of its own; it keeps at most `max_rows` in the database.

    Answers that cannot be stored, because the database is unavailable or a read-only standby, are dropped.
    """

    def __init__(self, database: Database, max_rows: int) -> None:
        self._database = database
        self._max_rows = max_rows
        self._pending: deque[EmptyAnswer] = deque(maxlen=MAX_PENDING)
        self._lock = Lock()
        self._insert_lock = Lock()
        self._is_scheduled = False
        self._last_insert = -INTERVAL_SECONDS

    def record(self, completed: CompletedRequest) -> None:
        """Store a completed request if it is a search that found no candidate."""
        if not completed.is_empty_search:
            return
        answer = EmptyAnswer(
            uuid=str(uuid4()),
            created_at=datetime.now(UTC),
            query=completed.query[:MAX_QUERY_LENGTH],
            request_id=completed.request_id,
            global_request_id=completed.global_request_id,
            user_id=completed.user_id,
            project_id=completed.project_id,
        )
        with self._lock:
            self._pending.append(answer)
            if not self._is_scheduled:
                self._is_scheduled = True
                delay = max(0.0, self._last_insert + INTERVAL_SECONDS - monotonic())
                timer = Timer(delay, self._store)
                timer.daemon = True
                timer.start()

    def stop(self) -> None:
        """Store the answers that still wait; give up after `STOP_SECONDS`, for example without a database."""
        thread = Thread(target=self._store, daemon=True)
        thread.start()
        thread.join(STOP_SECONDS)

    def _store(self) -> None:
        with self._insert_lock:
            with self._lock:
                answers = list(self._pending)
                self._pending.clear()
                self._is_scheduled = False
                self._last_insert = monotonic()
            if not answers:
                return
            try:
                self._database.write(empty_answers.add, answers, self._max_rows)
            except (PlacementError, DBAPIError) as error:
                log.debug("%d empty answers were not stored: %s", len(answers), error)
