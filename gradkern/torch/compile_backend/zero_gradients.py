"""Zeros that are known to be: the gradients of a compiled graph's results that no loss depends on.

A model that returns a loss and its logits has a gradient for both. Where only the loss is used, autograd makes zeros
for the logits, and the graph adds them to the loss's own gradient: of a language model a gigabyte is written, and read.
Here those zeros are made in autograd's place, and an operator that is given them knows them by their memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

_known: dict[int, torch.Tensor] = {}
"""By address, while the backward pass runs that they were made for: nothing else has their memory as long."""


def are_known(x: torch.Tensor) -> bool:
    """Whether this has the memory of such zeros. They are read, never written."""
    zeros = _known.get(x.data_ptr())
    return zeros is not None and (zeros.numel(), zeros.dtype) == (x.numel(), x.dtype)


def made_for(run: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """A compiled graph, with such zeros for the results at these places."""

    def run_and_watch(*args: Any) -> Any:
        _known.clear()  # of a backward pass that failed: where memory ran out, it has to be free
        results = list(run(*args))
        node = getattr(results[places[0]], "grad_fn", None)
        if node is None:
            return results
        mine = [place for place, each in enumerate(results) if getattr(each, "grad_fn", None) is node]
        made = list[int]()
        given = [place in places for place in mine]
        for place, each in zip(mine, _Results.apply(given, made, *map(results.__getitem__, mine)), strict=True):  # pyright: ignore[reportArgumentType]
            results[place] = each
        node.register_hook(lambda *_: _forget(made))  # behind the graph's backward pass
        return results

    return run_and_watch


class _Results(torch.autograd.Function):
    """The results as they are. Autograd lets nothing else than a function of all of them give zeros for one."""

    @staticmethod
    def forward(ctx: Any, given: list[bool], made: list[int], *results: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.how = [each.new_empty(0) if known else None for known, each in zip(given, results, strict=True)]
        ctx.shapes, ctx.made = [each.shape for each in results], made
        return tuple([each.detach() for each in results])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        return None, None, *map(_or_zeros, gradients, ctx.how, ctx.shapes, itertools.repeat(ctx.made))


def _or_zeros(
    gradient: torch.Tensor | None, like: torch.Tensor | None, shape: torch.Size, made: list[int]
) -> torch.Tensor | None:
    if gradient is not None or like is None:
        return gradient
    zeros = like.new_zeros(shape)
    made.append(zeros.data_ptr())
    _known[made[-1]] = zeros
    return zeros


def _forget(made: list[int]) -> None:
    while made:
        _known.pop(made.pop(), None)
