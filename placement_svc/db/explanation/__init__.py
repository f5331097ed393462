"""The explanation of a request for allocation candidates (`docs/spec/extensions.md 3`).

Read the modules in this order:

* `filters`: the filters of a request, with ids from the criteria of the search.
* `patterns`: one pass over the cloud in SQL, which returns how many roots have each combination of providers.
* `counts`: the counts of each filter, from these numbers alone.
* `combinations`: the counts of the filters on several groups, which combines the suppliers of single trees.
* `amounts`: what the inventories that fail a filter could supply.
* `kind`: why there are no candidates.
* `explain`: the whole explanation.
"""
