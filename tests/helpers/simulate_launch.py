"""From a call to results under the CUDA simulator, through the plan that it gets and the plan's one launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

import numpy as np

from gradkern.call import Call, Tensor
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.policy import Policy
from helpers import simulated
from helpers.held import Held, hold

__all__ = ["simulate"]


def _axes(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    rank = len(shape)
    return (0, *range(2, rank), 1) if last else tuple(range(rank))


def simulate(
    plan: Callable[[Call], Any],
    operator: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, tuple[tuple[int, ...], Any]],
    attributes: Mapping[str, Any],
    axes: Mapping[str, Any],
    last: bool,
    processors: int = 132,
) -> tuple[dict[str, np.ndarray], str]:
    """The outputs, of these shapes and types, and the kernel's name. last: channels are last in memory. processors: of
    the device; few, where a plan makes more blocks than a test needs.
    """
    held = {name: hold(each, axes=_axes(each.shape, last)) for name, each in inputs.items()}
    written = {name: Held(shape, dtype, axes=_axes(shape, last)) for name, (shape, dtype) in outputs.items()}
    tensors: dict[str, Tensor] = {name: each.tensor for name, each in {**held, **written}.items()}
    call = Call(
        operator,
        {name: tensors[name] for name in held},
        {name: tensors[name] for name in written},
        attributes,
        axes,
        frozenset(),
        "cuda:0",
        Policy(),
    )
    with dry_run(DryRunDevice(0, (9, 0), processors, 232448)) as device:
        planned = plan(call)
    (spec,) = device.specs
    launch = planned.launches[0]
    arguments, places, _ = launch.block
    for place, each in zip(places, (*held.values(), *written.values()), strict=True):
        arguments[place] = each.address
    kernel = resolve_name(spec.builder)(*spec.constants)
    given = tuple(np.int64(each) for each in arguments)
    simulated.launch(kernel, launch.grid, launch.threads, 1, launch.kernel.shared_bytes, given)
    for each in (*held.values(), *written.values()):
        each.memory.check()
    return {name: np.array(each.array) for name, each in written.items()}, planned.kernel
