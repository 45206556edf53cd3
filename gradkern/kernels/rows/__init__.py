"""Rows: up to two reductions over each row of an array, and results for each of its elements and for the row.

A row's elements are neighbours in memory (kernel.py), or lie across it, along an axis that is not the last
(inner_kernel.py): problem.py finds which. access.py has what an operator gives, totals.py how the threads of a row
combine their parts, config.py which threads have which elements, plan.py makes launches.
"""
