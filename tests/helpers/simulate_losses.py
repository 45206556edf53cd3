"""What stands for loaded kernels and their launches where whole plans run under the CUDA simulator."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

import numpy as np

from gradkern.cuda.device import Device
from helpers import simulated

__all__ = ["Launch", "kernel_of"]


class Launch:
    """Stands for launch.Launch, its kernel a Python function and its block's shared memory."""

    def __init__(
        self,
        kernel: Any,
        grid: int,
        threads: int,
        arguments: Sequence[int],
        changing: Sequence[int],
        cluster: int = 1,
        overlaps: bool = False,
    ) -> None:
        self.how, self.arguments, self.changing = (kernel, grid, threads, cluster), arguments, changing

    def __call__(self, values: Sequence[int], _stream: int) -> None:
        (kernel, shared_bytes), grid, threads, cluster = self.how
        arguments = list(self.arguments)
        for index, value in zip(self.changing, values, strict=True):
            arguments[index] = value
        simulated.launch(kernel, grid, threads, cluster, shared_bytes, tuple(np.int64(each) for each in arguments))


def kernel_of(_device: Device, builder: str, *constants: Any, shared_bytes: int = 0, **_: Any) -> Any:
    return resolve_name(builder)(*constants), shared_bytes
