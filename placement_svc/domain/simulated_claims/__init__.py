"""Simulated claims: how often a request can be claimed (`docs/spec/extensions.md 4`).

`claiming` claims at one root after the other; `split_claiming` does so if classes may be split, and
`independent_claims` where demands never affect each other. `run` has what all runs have in common, `amounts`
what a claim takes. `supplier_orders` is the order in which suppliers are used, and `alike_roots` finds roots
whose claims need not be computed again. `most_claims` has an upper bound of the number of claims, which
`competing_demands` and `packing` try to reach.
"""
