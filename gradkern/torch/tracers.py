"""gradkern's modules as torch.fx and torch.jit.script see them: as PyTorch's."""

from __future__ import annotations

from typing import Any

from torch import fx, nn  # pyright: ignore[reportMissingImports]

from gradkern.torch.functional.arguments import require_tensor


def traced(module: nn.Module, *inputs: Any) -> Any:
    """The call of a module as one node of torch.fx's graph, as calls of torch.nn's modules are.

    Raises ArgumentError where the first input is neither a tensor nor torch.fx's proxy.
    """
    if not isinstance(inputs[0], fx.Proxy):
        require_tensor(type(module).__name__, "input", inputs[0])
    tracer: Any = inputs[0].tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), inputs, {})


class Scriptable:
    """A module that torch.jit.script takes for PyTorch's."""

    def __prepare_scriptable__(self: Any) -> nn.Module:
        return as_pytorchs(self)


def as_pytorchs(module: nn.Module) -> nn.Module:
    """The module in the class that it has but for gradkern, of the same parameters, buffers and children."""
    kind = class_but_for_gradkern(module)
    other = kind.__new__(kind)
    other.__dict__.update(vars(module))
    other._modules = dict(module._modules)
    return other


def class_but_for_gradkern(module: nn.Module) -> Any:
    """The first of a module's classes that is not gradkern's."""
    return next(each for each in type(module).__mro__ if each.__module__.partition(".")[0] != "gradkern")
