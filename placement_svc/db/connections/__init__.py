"""Connections to PostgreSQL: pools, transactions, and what happens when a server or a session fails.

`engine` has the `Database`, by which everything else reads and writes; `standbys` sends reads to standbys,
and `primary_watch` reads the WAL position of the primary for them. `urls` parses the URL of a database;
`session_options` has the options of its sessions. `transactions` begins transactions, and `terminations`
finds out whether PostgreSQL has rolled one back. `cancellation` and `time_limit` end statements that take too
long; `hang_detection` and `server_hosts` find servers that do not respond, with the `sockets` of the driver.
Commands use `connection_check` and `sessions`, the start of the service `durability`.
"""
