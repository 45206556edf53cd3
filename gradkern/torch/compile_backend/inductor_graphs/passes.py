"""Stages 2 and 3: passes over Inductor's graphs. They change only gradkern's own operators, and tables.

They stand beside what another library has put in the same places, and what they do is part of the keys of PyTorch's
caches: the files of this folder and gradkern's version, since a backward pass that is registered for an operator is in
no key by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from torch import fx  # pyright: ignore[reportMissingImports]
from torch._inductor import config, custom_graph_pass  # pyright: ignore[reportMissingImports]
from torch._inductor.custom_graph_pass import CustomGraphPass  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import operators
from gradkern.torch.compile_backend.dynamo_graph import windows
from gradkern.torch.compile_backend.gates import Gates
from gradkern.torch.compile_backend.inductor_graphs import each_graph, joint_graph, loss_gradients, recomputed
from gradkern.version import __version__


def _with_what_gradients_have(graph: fx.Graph, gates: Gates) -> None:
    windows.leave_forward_passes(graph)
    joint_graph.fold_sums(graph)
    joint_graph.take_bias_gradients(graph)
    loss_gradients.take(graph)
    joint_graph.hold_parameters(graph)
    recomputed.recompute_outputs(graph)


def _as_kernels_want_it(graph: fx.Graph, gates: Gates) -> None:
    each_graph.agree_on_strides(graph)
    each_graph.take_few_channels(graph, gates)
    each_graph.write_in_place(graph)
    operators.leave_gradients(graph)
    each_graph.keep_tables(graph, gates)


_PASSES: dict[str, Callable[[fx.Graph, Gates], None]] = {
    "joint_custom_pre_pass": _with_what_gradients_have,
    "post_grad_custom_post_pass": _as_kernels_want_it,
}


class _Pass(CustomGraphPass):
    def __init__(self, function: Callable[[fx.Graph, Gates], None], gates: Gates) -> None:
        self._function, self._gates = function, gates

    def __call__(self, graph: fx.Graph) -> None:
        self._function(graph, self._gates)

    def uuid(self) -> Any:
        return f"gradkern {__version__} {self._function.__module__} {_digest()} {self._gates.key}"


class _After(CustomGraphPass):
    """Another library's pass, and gradkern's after it, for versions of PyTorch that take one pass."""

    def __init__(self, before: Any, after: _Pass) -> None:
        self._before, self._after = before, after

    def __call__(self, graph: fx.Graph) -> None:
        self._before(graph)
        self._after(graph)

    def uuid(self) -> Any:
        """None, so that nothing is cached, where the other has none."""
        other = self._before.uuid() if isinstance(self._before, CustomGraphPass) else None
        return None if not other else (other, self._after.uuid())


@cache
def _digest() -> str:
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"\0".join(each.read_bytes() for each in files)).hexdigest()


def config_with_passes(options: Mapping[str, Any], gates: Gates) -> dict[str, Any]:
    """Inductor's options with gradkern's passes, each after the pass that is there already."""
    own = {name: _Pass(function, gates) for name, function in _PASSES.items()}
    return {**options, **{name: _joined(options.get(name, getattr(config, name)), own[name]) for name in own}}


def _joined(before: Any, own: _Pass) -> Any:
    if before is None:
        return own
    if hasattr(custom_graph_pass, "get_custom_graph_passes"):  # several passes may be given
        return [*(before if isinstance(before, list | tuple) else (before,)), own]
    return _After(before, own)
