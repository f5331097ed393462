"""The search for allocation candidates: from a request to the trees that can satisfy it.

`requests` turns names into ids and groups into demands, `suppliers` says as SQL who can supply a
demand, `anchors` finds the trees in which every demand has a supplier, and `trees` fetches what is
to be known of the winners.
"""
