"""Calls of enable()'s operators answered from machine code: no Python, and no GIL, between PyTorch and the kernel.

shim          PyTorch's C functions, by address
words         the layout of the memory that Python writes and machine code reads
machine_code  the function that PyTorch calls: written for Numba, compiled once, kept in the cache of machine code
loaded        that code in this process, from the cache where it has it
recording     a plan's launches, as machine code repeats them
kernel        an operator registered that way: its records of calls, and the way to Python for all others
sites         places in compiled code that are answered that way
"""
