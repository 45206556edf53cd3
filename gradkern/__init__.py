"""gradkern: neural-network gradients on NVIDIA GPUs, and on CPUs, from Python.

>>> import gradkern
>>> gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1])

Importing it does no work: NumPy, the registry and the kernels are loaded by the first call that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradkern.errors import (
    ArgumentError,
    AttributeValueError,
    DataError,
    DeviceError,
    DTypeError,
    GradkernError,
    OutputError,
    PolicyError,
    ProviderError,
    RegistryError,
    ShapeError,
    UnknownOperatorError,
)
from gradkern.policy import Policy, policy
from gradkern.version import __version__ as __version__

if TYPE_CHECKING:
    from gradkern.contract.registry import operators
    from gradkern.contract.schema import Operator
    from gradkern.dispatch.plan_cache import plan_cache
    from gradkern.dispatch.prepared import Prepared
    from gradkern.dispatch.recording import recorded
    from gradkern.dispatch.run import prepare, run
    from gradkern.dispatch.tuning import tune

__all__ = [
    "ArgumentError",
    "AttributeValueError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "GradkernError",
    "Operator",
    "OutputError",
    "Policy",
    "PolicyError",
    "Prepared",
    "ProviderError",
    "RegistryError",
    "ShapeError",
    "UnknownOperatorError",
    "operators",
    "plan_cache",
    "policy",
    "prepare",
    "recorded",
    "run",
    "tune",
]

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


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'gradkern' has no attribute {name!r}")
    load = import_module("gradkern.system.importing").load
    value = globals()[name] = getattr(load(f"gradkern.{_LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
