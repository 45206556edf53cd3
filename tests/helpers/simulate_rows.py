"""Launches of the row block under the CUDA simulator, in memory that shows every stray access."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradkern.call import Tensor
from gradkern.cuda.device_code import simulated
from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.plan import sizes_of
from gradkern.kernels.rows.problem import ARGUMENTS, RowsProblem, RowsTypes, problem_of
from helpers.guarded import Guarded

__all__ = ["hold", "run"]

Kernels = Callable[[RowsTypes, RowsConfig], Callable[..., None]]


class Held:
    """An array of any strides in guarded memory, `offset` elements behind 16 bytes, its last axis padded."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, offset: int = 0, spread: int = 0, axes: Any = None) -> None:
        axes = tuple(range(len(shape))) if axes is None else axes  # in memory order
        stored = tuple(shape[axis] for axis in axes)
        item = np.dtype(dtype).itemsize
        columns = stored[-1]
        self.memory = Guarded((int(np.prod(stored[:-1])), columns), dtype, offset * item, (columns + spread) * item)
        strides = [item * (columns + spread) * int(np.prod(stored[n + 1 : -1])) for n in range(len(stored) - 1)]
        view = np.lib.stride_tricks.as_strided(self.memory.array, stored, (*strides, item))
        self.array = view.transpose(np.argsort(axes))
        self.address = self.memory.address

    @property
    def tensor(self) -> Tensor:
        alignment = next(each for each in (16, 8, 4, 2, 1) if self.address % each == 0)
        return Tensor(self.array.dtype, self.array.shape, self.array.strides, alignment)


def hold(array: np.ndarray, **how: Any) -> Held:
    """A copy of the array."""
    held = Held(array.shape, array.dtype, **how)
    held.array[...] = array
    return held


def run(
    build: Kernels,
    types: RowsTypes,
    inputs: Mapping[str, Held],
    outputs: Mapping[str, Held],
    axes: tuple[int, int],
    configs: Callable[[RowsProblem], RowsConfig],
    others: Mapping[str, int] | None = None,
) -> RowsConfig:
    """One launch, of inputs and outputs by the kernel's names; others: addresses of numbers of columns and rows."""
    problem = problem_of(types, {name: each.tensor for name, each in {**inputs, **outputs}.items()}, *axes)
    config = configs(problem)
    grid, numbers = sizes_of(problem, config)
    named = numbers | dict(others or {}) | {name: each.address for name, each in {**inputs, **outputs}.items()}
    arguments = tuple(np.int64(named.get(name, 0)) for name in ARGUMENTS)
    kernel = build(types, config)
    simulated.launch(kernel, grid, config.threads, config.cluster, config.shared_bytes(types), arguments)
    for each in (*inputs.values(), *outputs.values()):
        each.memory.check()
    return config
