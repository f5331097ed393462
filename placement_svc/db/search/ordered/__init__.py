"""The search for candidates with `preferred` or `order_by` (`docs/spec/extensions.md 2`).

`search` is the whole search. `anchors` delivers its anchors by the best rank that their trees can have, in
batches whose sizes `batches` decides. `roots` has the roots in this order, and `sets` those that the filters
allow. `facts` reads what the ranks depend on, and `subtrees` excludes suppliers by `same_subtree` before the
trees are fetched.
"""
