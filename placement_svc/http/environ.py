"""Keys of the WSGI environment that `placement_svc.server` sets for the application.

Another WSGI server does not set them.
"""

IS_CLIENT_GONE = "placement_svc.is_client_gone"
"""A callable without arguments, which returns whether the client has closed its connection.

It also returns True for a client that has closed only its sending side and still waits for its response. The
two cannot be distinguished, and no HTTP library for clients does the latter.
"""

SHARE_TURN = "placement_svc.share_turn"
"""A callable that a long request calls every 0.1 s, with the seconds that it has left.

It lets other requests run first. It raises `Unavailable` if too many long requests wait, or if the time is
over.
"""

PAUSE_TURN = "placement_svc.pause_turn"
"""A callable without arguments: the request waits for other requests, and needs no turn meanwhile."""

RESUME_TURN = "placement_svc.resume_turn"
"""A callable that a request calls after `PAUSE_TURN` to compute again, with the seconds that it has left.

It raises `Unavailable` if no turn is free in this time.
"""
