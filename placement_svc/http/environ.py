"""The methods of reads, and the keys of the WSGI environment that `placement_svc.server` sets.

Another WSGI server does not set these keys.
"""

READ_METHODS = ("GET", "HEAD", "OPTIONS")
"""The methods of requests that change nothing: they may be canceled, or processed again, at any time."""

IS_CLIENT_GONE = "placement_svc.is_client_gone"
"""A callable without arguments, which returns whether the client has closed its connection.

Some time after the start of the request, it also returns True for a client that has closed only its sending
side and still waits for its response. The two cannot be distinguished, and no HTTP library for clients does
the latter.
"""

SLOT = "placement_svc.slot"
"""The `placement_svc.domain.execution.deadline.Slot` of the request: its permission to compute."""
