"""Combining the suppliers in a tree into allocation candidates (`docs/spec/candidates.md 3`).

`candidates` generates them on demand; `ordered_candidates` does so in the order that `ordering` defines. The
`constraints` on several suppliers, among them `same_subtree` and `subtree_exclusion`, implement the interface
in `interfaces`; `matching` tells whether demands can have different suppliers. `splitting` divides a resource
class among several providers, which are one of the `split_suppliers`.
"""
