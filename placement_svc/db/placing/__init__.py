"""Search and claim in one request: `POST /claims` (`docs/spec/extensions.md 5`).

`service` is the entry point. `batcher` lets requests of the same kind wait for each other, and `batch` places
them with one search and one claim. `search` finds candidates for several consumers in one snapshot: `trees`
reads the trees among which it places them, and `anchors` finds these in batches. A `stored_rule`, that of a
placement group, restricts the trees.
"""
