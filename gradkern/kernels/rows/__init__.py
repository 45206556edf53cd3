"""Rows: up to two reductions over each row of an array, and results for each of its elements and for the row.

A row's elements are adjacent in memory (kernel.py) or strided, along an axis that is not the last (inner_kernel.py):
problem.py decides. access.py has what an operator gives, totals.py how the threads of a row combine their parts,
config.py the mapping of elements to threads. plan.py makes launches.
"""
