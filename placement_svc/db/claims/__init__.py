"""Claims: requests that replace the allocations of consumers (`docs/spec/allocations.md 5 to 7`).

`service` is the entry point. `procedures` calls the stored procedures, which grant or refuse claims within
one statement; `refusal` finds the reason for a refusal; `outcomes` finds out whether a claim is stored whose
connection was lost; `batcher` commits claims of new consumers and releases on the same providers as one
batch; `recent_claims` knows the providers of a consumer to release.
"""
