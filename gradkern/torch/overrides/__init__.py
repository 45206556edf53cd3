"""Level 1, `gradkern.torch.enable()`: aten's backward kernels answered by gradkern, for every model of the process.

The way of a call: PyTorch's dispatcher comes to what override.py has put at the backend's key, a kernel.py, which looks
up the call's signature (signatures.py). A plan that is there answers (runners.py), and PyTorch's own kernel all else.
The first call of a kind becomes a request in the registry's words (request.py, aten/), for which switch.py's `tune`
plans, compiles and searches; comparison.py and step_comparison.py find out what does not pay. report.py tells.
"""
