"""gradkern: neural-network gradients on NVIDIA GPUs, and on CPUs, from Python.

>>> import gradkern
>>> gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1])

run         compute an operator of the registry
prepare     the plan for a call, a Prepared, to be called without look-up
operators   every operator's contract, an Operator, by name
policy      set how algorithms are chosen, a Policy, for a block of code
tune        make the searches that calls have put off
recorded    the calls of this process, for `gradkern warmup --calls FILE`
plan_cache  the plans that were made: statistics() and clear()
results     the named tuples that run returns
torch, jax  the same for PyTorch's models and JAX's functions, imported when first used
onnx        training graphs of ONNX Runtime run from file, imported when first used

What is refused raises a GradkernError, before anything is computed or written:

ArgumentError        an argument is missing, surplus, of an unknown name, or no array
AttributeValueError  an attribute is outside what the contract allows
DTypeError           an element type, or the combination of them, is not registered
ShapeError           a rank or an axis does not fit the contract or another array
OutputError          an array given as `out` cannot take the result
DeviceError          the arrays of one call are not all on one device
DataError            the elements of an array break the contract
PolicyError          a policy has an unknown field, or a value it cannot have
ProviderError        no provider can run the call
GraphError           an ONNX model cannot be run
RegistryError        registry.yaml is refused
UnknownOperatorError the registry has no operator of this name

`gradkern ops NAME` on a command line shows a contract whole, `gradkern doctor` checks the machine.

Importing it does no work: NumPy, the registry and the kernels are loaded by the first call that needs them.
"""

# __init__.pyi, made by tools/stubs.py, has the types, and __all__ as a list of names.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any

from gradkern import errors as _errors
from gradkern.errors import *  # noqa: F403
from gradkern.policy import Policy as Policy
from gradkern.policy import policy as policy
from gradkern.system import importing as _importing  # now: else nothing guards the first use's import against a fork
from gradkern.version import __version__ as __version__

_LATER = {
    "Operator": "contract.schema",
    "Prepared": "dispatch.prepared",
    "operators": "contract.registry",
    "plan_cache": "dispatch.plan_cache",
    "prepare": "dispatch.run",
    "recorded": "dispatch.recording",
    "run": "dispatch.run",
    "tune": "dispatch.tuning",
}
"""Public names that need NumPy or the registry, and their modules."""
__all__ = sorted([*_errors.__all__, *_LATER, "Policy", "policy"])

_MODULES = ("jax", "onnx", "results", "torch")
"""Public modules that are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        try:
            return import_module(f"gradkern.{name}")
        except ModuleNotFoundError as error:
            if (error.name or "gradkern").partition(".")[0] == "gradkern":
                raise
            raise AttributeError(f"gradkern.{name} needs {error.name}, which is not installed: {error}") from error
    if name not in _LATER:
        raise AttributeError(f"module 'gradkern' has no attribute {name!r}")
    value = globals()[name] = getattr(_importing.load(f"gradkern.{_LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__, *_MODULES])
