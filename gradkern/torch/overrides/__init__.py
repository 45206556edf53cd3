"""Level 1, `gradkern.torch.enable()`: aten's backward kernels answered by gradkern, for every model of the process.

The path of a call: PyTorch's dispatcher calls the kernel (kernel.py) that override.py has registered at the backend's
key. It looks up the call's signature (signatures.py). If there is a plan, that answers (runners.py), and PyTorch's own
kernel otherwise. The first call of a kind becomes a request in the registry's terms (request.py, aten/). switch.py's
`tune` plans, compiles and searches for it; comparison.py and step_comparison.py find out what does not pay. report.py
has the report.
"""
