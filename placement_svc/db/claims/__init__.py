"""Claims: requests that replace the allocations of consumers (`docs/spec/allocations.md 5 to 7`).

`service` is the entry point. `procedures` calls the stored procedures, which grant or refuse claims within
one statement; `refusal` finds the reason for a refusal; `batcher` commits claims of new consumers on the
same providers as one batch.
"""
