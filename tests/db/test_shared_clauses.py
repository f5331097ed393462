"""Aliases and common table expressions that all threads share: each has one set of columns."""

import subprocess
import sys

FIRST_USE = """
import importlib, pkgutil, sys, threading
from sqlalchemy import FromClause, FunctionElement
import placement_svc.db

sys.setswitchinterval(1e-6)
modules = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(placement_svc.db.__path__, "placement_svc.db.")
]
values = [value for module in modules for value in vars(module).values()]
values += [each for value in values if isinstance(value, list | tuple) for each in value]
clauses = [each for each in values if isinstance(each, FromClause) and not isinstance(each, FunctionElement)]
barrier = threading.Barrier(8)
columns = []

def use():
    barrier.wait()
    columns.append([list(clause.c) for clause in clauses])

threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
distinct = {tuple(map(id, each)) for found in columns for each in found}
print(len(distinct), len(set(map(id, clauses))))
"""


def test_threads_get_the_same_columns_at_first_use():
    # In a process of its own: here, the columns may have been used already.
    output = subprocess.run(
        [sys.executable, "-c", FIRST_USE], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    found, expected = map(int, output.split())
    assert found == expected > 30
