"""What every endpoint shares of HTTP: versions, authentication, policy, errors, caching."""
