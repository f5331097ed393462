"""What the server and the application agree on: methods that read, and keys of the WSGI environment.

`placement_svc.server` sets these keys; another WSGI server does not.
"""

READ_METHODS = ("GET", "HEAD", "OPTIONS")
"""The methods of requests that change nothing: they may be canceled, or processed again, at any time."""

IS_CLIENT_GONE = "placement_svc.is_client_gone"
"""A callable without arguments, which returns whether the client has closed its connection.

It also returns True for a client that has closed only its sending side and still waits for its response. The
two cannot be distinguished, and no HTTP library for clients does the latter.
"""

SLOT = "placement_svc.slot"
"""The `placement_svc.domain.execution.deadline.Slot` of the request: its permission to compute."""
