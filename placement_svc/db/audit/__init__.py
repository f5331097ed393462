"""The audit of the stored data: `audit` runs all `rules`.

`rule` has what a rule consists of; `group_rules` has the SQL of those about placement groups, and `labels`
names the rows in the findings.
"""
