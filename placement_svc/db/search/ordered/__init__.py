"""The search for candidates with `preferred` or `order_by` (`docs/spec/extensions.md 2`).

`search` is the whole search. `anchors` delivers its anchors by the best rank that their trees can have, in
batches whose sizes `batches` decides. `roots` has the roots in this order: it merges those with own
inventories (`own_roots`) and those that sharing providers serve (`served_roots`), or reads the `sets` that
the filters allow. `uuid_order` orders roots by uuid. `facts` reads what the ranks depend on, and `subtrees`
excludes suppliers by `same_subtree` before the trees are fetched.
"""
