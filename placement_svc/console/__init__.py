"""The console: read-only pages at /console that show the cloud to an operator.

The pages are rendered on the server and work without JavaScript. They call the same functions of `db` and
`domain` as the API, and ask the policy rules of the endpoints whose data they show.
"""
