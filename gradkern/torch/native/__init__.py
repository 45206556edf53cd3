"""Calls of enable()'s operators answered from machine code: no Python, and no GIL, between PyTorch and the kernel.

shim          PyTorch's C functions, by address
words         the layout of the memory that Python writes and machine code reads
machine_code  the function that PyTorch calls: written for Numba, compiled once, kept in the cache of machine code
loaded        that code in this process, from the cache where it has it
recording     a plan's launches, as machine code repeats them
records       calls that are recognised, and how they are computed
kernel        an operator of PyTorch's registered that way, and the way to Python for all other calls
sites         places in compiled code, whose calls are answered without PyTorch between
"""
