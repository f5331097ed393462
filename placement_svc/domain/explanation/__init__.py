"""The rules of explanations of requests for allocation candidates (`docs/spec/extensions.md 3`).

`filters` has the conditions of a request. `supplier_tests` and `root_tests` examine providers and roots with
any of them, and `root_failures` finds those that a root fails. `relaxations` are changes of the request, and
`summary` describes the result in sentences.
"""
