"""The query layer of allocation candidates: from a request to the trees that can satisfy it.

Read the modules in this order:

* `candidates`: the whole search, a loop that fetches and combines one batch of anchors after the
  other; `batches` decides how large each batch is and when fetching stops.
* `criteria`: the request with ids instead of names, which `name_lookup` finds; for each request group,
  `criteria_builder` makes one or several demands, each with its supplier criteria. `ignored_consumers` reads
  what the request counts as free.
* `sharing`: the sharing providers that can supply a demand to other trees.
* `anchors`: the root providers around which every demand has a supplier; `anchor_statement` has the SQL for
  a `root_selection`, which tells what roots are examined. Two strategies find them: `root_scan` examines root
  by root, from `random_root` on if the order is random; `selective_lookup` starts from the rarest criterion,
  and uses `combination_conditions`. Both examine only the roots that `root_sets` finds for the filters.
  `tree_conditions` and `suppliers` hold the SQL that both use, `serving` what sharing providers add to it,
  and `demand_rows` the demands as a table. The statement is built once for all searches whose criteria have
  the same `criteria_shape`.
* `trees`: the providers of these trees with their inventories and traits; `tree_statements` has the SQL,
  and `list_texts` the lists in its rows.
  `repeated_candidates` omits candidates that are found around several roots.
* `ordered`: the search with `preferred` or `order_by`.
* `simulated_suppliers`: the suppliers of simulated claims, for the capacity of a request and `POST /claims`.
"""
