"""Backward operators that Inductor calls as they are, where it would take them apart and fuse the parts.

Inductor decomposes the gradients of norms, GELU and embeddings before it compiles, so no override of theirs is ever
called in a compiled model. Without its decomposition an operator stays whole in the graph, as a call that dispatches
like any other: gradkern answers it, or PyTorch's kernel what gradkern declines. The caches on disk do not look at
decompositions, so what is left whole becomes part of their keys, by torch.compiler.config.cache_key_tag.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten import TRANSLATIONS

_removed: list[tuple[dict[Any, Any], Any, Any]] = []  # table, operator, decomposition
_tags: list[tuple[str, str]] = []  # the user's, and with gradkern's


def leave_whole(groups: tuple[str, ...]) -> None:
    """Let what is compiled from now on call the operators of these groups, and of no others. What has been compiled in
    this process is compiled anew, so that it calls them too, or no longer.
    """
    config: Any = import_module("torch.compiler.config")
    while _removed:
        table, operator, decomposition = _removed.pop()
        table[operator] = decomposition
    if _tags:
        before, ours = _tags.pop()
        if config.cache_key_tag == ours:
            config.cache_key_tag = before
    if groups:
        for table in _tables():
            here = [each for each in _operators(groups) if each in table]
            _removed.extend((table, each, table.pop(each)) for each in here)
        _let_inductor_call(_operators(groups))
        before = config.cache_key_tag
        _tags.append((before, f"{before} gradkern {_digest()}: {', '.join(sorted(groups))}".strip()))
        config.cache_key_tag = _tags[0][1]
    torch.compiler.reset()


@cache
def _digest() -> str:
    """The digest of this module: it decides how compiled code calls what is left whole."""
    return sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def _let_inductor_call(operators: list[Any]) -> None:
    """Left to itself it would do so when it meets them, but not where the environment has CI, and not in one order."""
    lowering: Any = import_module("torch._inductor.lowering")
    for each in operators:
        if each not in lowering.lowerings:
            lowering.make_fallback(each, _in_one_order if "norm" in each.name() else None, False)


def _in_one_order(node: Any, *args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a norm's call with gradient and input in C order, or both channels-last if the input is.

    Inductor takes the order of the result from a decomposition, and that follows the gradient's. PyTorch's kernels
    follow the input's, or C order if it is neither: where the two differ, compiled code raises an AssertionError.
    """
    kernel: Any = import_module("torch._inductor.ir").ExternKernel
    is_first = node.target is torch.ops.aten.cudnn_batch_norm_backward.default  # the input among the arguments
    x = node.args[0 if is_first else 1].meta["val"]
    require = kernel.require_contiguous
    if "batch_norm" in node.target.name() and not x.is_contiguous():
        if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
            require = kernel.require_channels_last
        elif x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d):
            require = kernel.require_channels_last_3d
    return (*map(require, args[:2]), *args[2:]), named


def _tables() -> list[dict[Any, Any]]:
    """Inductor's table, and the copy of it that it compiles with."""
    decomposition: Any = import_module("torch._inductor.decomposition")
    return [decomposition.decompositions, decomposition.fast_random_decomps()]


def _operators(groups: tuple[str, ...]) -> list[Any]:
    found = [getattr(torch.ops.aten, each.name, None) for each in TRANSLATIONS if each.group in groups]
    return [packet.default for packet in found if packet is not None]
