"""Placing the consumers of `POST /claims` on trees, in memory (`docs/spec/extensions.md 5`).

`placements` has the request and its result. `placer` places one consumer after the other, on trees in one of
the `tree_orders`: with `preferred` or `order_by`, in a `ranked_order`. A `rule` restricts the trees.
`supplier_parts` selects the suppliers of a tree from which the candidates of a consumer are combined.
"""
