"""The HTTP rules that all endpoints share: microversions, authentication, policy, errors, caching."""
