"""The explanation of a request for allocation candidates (`docs/spec/extensions.md 3`).

Read the modules in this order:

* `filters`: the filters of a request, with ids from the criteria of the search.
* `patterns`: the conditions that each provider meets, in SQL.
* `layout`: the columns of each root, which `rows` turns into tables.
* `cloud`: one pass over the cloud, which returns the roots in groups with the same patterns and amounts.
* `counts`: the counts of each filter, from these numbers alone.
* `combinations` and `trees`: the counts of the filters on several groups, which combine suppliers.
* `amounts`: what the inventories that fail a filter could supply.
* `kind`: why there are no candidates.
* `failures`, `nearest` and `details`: the hosts that come closest to having candidates, and what they lack.
* `relaxations`, `amount_search`, `split_amount_search` and `inventory_units`: the changes with which more
  hosts have candidates.
* `answer` and `returned_roots`: what cuts the response of the search, and how many roots it has.
* `explain`: the whole explanation.
"""
