"""Length limits of names, ids and request lines, in characters, which several packages share."""

UUID_LENGTH = 36
"""The length of a UUID with hyphens."""

MAX_AGGREGATE_UUID_LENGTH = 50
"""The longest spelling of the uuid of an aggregate, which is stored as it was sent."""

MAX_PROVIDER_NAME_LENGTH = 200

MAX_NAME_LENGTH = 255
"""The longest name of a trait, a resource class or a consumer type."""

MAX_ID_LENGTH = 255
"""The longest id of a project or a user."""

MAX_SUFFIX_LENGTH = 64
"""The longest suffix of a request group."""

MAX_REQUEST_LINE = 65_536
"""The longest request line: a query for allocation candidates with many request groups is long."""
