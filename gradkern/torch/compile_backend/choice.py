"""Graphs that run as gradkern has rewritten them, or as Inductor alone compiles them. `tune` finds the faster."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.system import locks

_live: weakref.WeakSet[Choice] = weakref.WeakSet()
_compiling = locks.reentrant_lock()


class _State(threading.local):
    captures = False


_state = _State()


@contextmanager
def in_cuda_graph() -> Iterator[None]:
    """Calls of this thread are, or are about to be, part of a CUDA graph: what they cost the host does not count."""
    before, _state.captures = _state.captures, True
    try:
        yield
    finally:
        _state.captures = before


class Choice:
    """One compiled graph, in two forms. The plain one is compiled when it is first called, with what it is called with.

    ran             set at every call, for who compares to clear
    plain           whether calls run Inductor's form
    plain_in_graph  whether those in a CUDA graph do
    """

    def __init__(self, ours: Callable[..., Any], compile_plain: Callable[[Sequence[Any]], Callable[..., Any]]) -> None:
        self._ours, self._compile_plain = ours, compile_plain
        self._of_inductor: Callable[..., Any] | None = None
        self.ran = self.plain = self.plain_in_graph = False
        _live.add(self)

    def __call__(self, *args: Any) -> Any:
        self.ran = True
        if not (self.plain_in_graph if _state.captures else self.plain):
            return self._ours(*args)
        if self._of_inductor is None:
            with _compiling:
                self._of_inductor = self._of_inductor or self._compile_plain(args)
        return self._of_inductor(*args)


def live() -> list[Choice]:
    """Those whose compiled code exists."""
    return list(_live)


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds of a step with gradkern's graphs and with Inductor's, and those that its kernels take on the GPU.

    is_plain           whether Inductor's are used
    is_plain_in_graph  whether they are where the host does not count
    is_clear           whether turns show which are faster; where they do not, the kernels' times decide
    """

    gradkern: float
    inductor: float
    is_plain: bool
    is_plain_in_graph: bool
    gradkern_on_device: float | None = None
    inductor_on_device: float | None = None
    is_clear: bool = True

    def __str__(self) -> str:
        used, captured = ("Inductor" if plain else "gradkern" for plain in (self.is_plain, self.is_plain_in_graph))
        text = f"compiled step: {self.gradkern:.2f} ms with gradkern's graphs, {self.inductor:.2f} with Inductor's, "
        if self.is_clear or self.gradkern_on_device is None or self.inductor_on_device is None:
            text += f"so {used}'s are used"
        else:
            least, most = sorted((self.gradkern_on_device, self.inductor_on_device))
            text += f"too close to tell: {used}'s are used, whose kernels take {least:.2f} and not {most:.2f} ms"
        on_device = self.inductor_on_device if self.is_plain_in_graph else self.gradkern_on_device
        if on_device is None or not is_host_bound(on_device, min(self.gradkern, self.inductor)):
            return text
        return (
            f"{text}. The host bounds it, its kernels take {on_device:.2f} ms: gradkern.torch.graphed makes it a CUDA "
            f"graph, with {captured}'s kernels"
        )


def is_host_bound(on_device: float, step: float) -> bool:
    """Whether the host bounds a step, by the times of its kernels and of all: gaps between kernels take some, too."""
    return on_device <= 0.85 * step


compared: list[StepTimes] = []
"""Every step that was compared, for the report."""


def has_open_sizes(inputs: Iterable[Any]) -> bool:
    """Whether a graph of these inputs serves several sizes: compiled again from a call it would serve that call's."""
    return any(
        isinstance(each, torch.SymInt)
        or (isinstance(each, torch.Tensor) and not all(isinstance(size, int) for size in (*each.shape, *each.stride())))
        for each in inputs
    )


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """A graph that can be rewritten while the other stays. Parameters and constants are shared."""
    made = fx.GraphModule(module, copy.deepcopy(module.graph), type(module).__name__)
    made.meta = dict(module.meta)
    if hasattr(module, "_param_name_to_source"):  # what Dynamo says of inputs: those that are parameters are static
        made._param_name_to_source = module._param_name_to_source
        for node, copied_node in zip(_inputs(module), _inputs(made), strict=True):
            copied_node._dynamo_source = node._dynamo_source
    for name, child in module.named_children():
        if isinstance(child, fx.GraphModule):
            setattr(made, name, copied(child))
    return made


def of_dynamo(module: fx.GraphModule) -> list[Any] | None:
    """A graph's inputs as Dynamo made them, without data; None where it did not make them all."""
    found = [node.meta.get("example_value") for node in _inputs(module)]
    return None if any(each is None for each in found) else found


def _inputs(module: fx.GraphModule) -> list[Any]:
    return module.graph.find_nodes(op="placeholder")
