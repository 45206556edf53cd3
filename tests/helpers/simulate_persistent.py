"""A launch of a persistent kernel of batch norms in guarded memory, under the CUDA simulator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from helpers import simulated
from helpers.guarded import Guarded


def launch(
    kernel: Callable[..., None],
    arguments: Sequence[str],
    partition: Any,
    arrays: dict[str, np.ndarray],
    outputs: Collection[str],
    clusters: int,
    cluster_size: int,
    threads: int,
    shared_bytes: int,
    in_place: str = "",
) -> dict[str, np.ndarray]:
    """The outputs, by the kernel's names, from arrays by these names in the order in which they lie in memory."""
    held = {name: Guarded((array.size,), array.dtype) for name, array in arrays.items()}
    for name, array in arrays.items():
        held[name].array[...] = array.ravel()
        if name != in_place:
            held[name].freeze()
    alike = {name: arrays["X" if name == "dX" else "scale"] for name in outputs}
    held |= {name: Guarded((array.size,), array.dtype) for name, array in alike.items()}
    if in_place:
        held["dX"] = held[in_place]
    numbers: dict[str, Any] = {name: each.address for name, each in held.items()}
    numbers |= {name: getattr(partition, name) for name in arguments if hasattr(partition, name)}
    values = tuple(np.int64(numbers.get(name, 0)) for name in arguments)
    simulated.launch(kernel, clusters * cluster_size, threads, cluster_size, shared_bytes, values)
    for guarded in held.values():
        guarded.check()
    return {name: np.array(held[name].array).reshape(array.shape) for name, array in alike.items()}
