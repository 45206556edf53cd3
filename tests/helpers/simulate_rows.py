"""Launches of the row block under the CUDA simulator, in memory that shows every stray access."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.plan import sizes_of
from gradkern.kernels.rows.problem import ARGUMENTS, RowsProblem, RowsTypes, problem_of
from helpers import simulated
from helpers.held import Held

__all__ = ["run"]

Kernels = Callable[[RowsTypes, RowsConfig], Callable[..., None]]


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
