"""What bodies and query strings may look like, at each microversion."""
