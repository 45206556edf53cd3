"""Inputs that no kernel takes as they lie, copied end to end on the device before the plan runs.

It costs one more pass over each such input, and memory for the copy, taken from the stream's own pool for the time of
the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

from gradkern.call import Call, Plan, Tensor
from gradkern.cuda import cache
from gradkern.cuda.device import Device, activate, check, device
from gradkern.cuda.launch import Launch, load
from gradkern.memory import c_strides

__all__ = ["ARGUMENTS", "MOST_AXES", "Gathered", "build", "scattered"]

MOST_AXES = 8
ARGUMENTS = 3 + 2 * MOST_AXES
THREADS = 256


def scattered(call: Call) -> tuple[str, ...]:
    """The inputs whose elements do not lie end to end in C order."""
    return tuple(
        name for name, tensor in call.inputs.items() if tensor.strides != c_strides(tensor.shape, tensor.dtype.itemsize)
    )


class Gathered:
    """A plan that copies the named inputs end to end, then runs the plan made for them."""

    def __init__(self, call: Call, names: tuple[str, ...], make: Callable[[Call], Plan]) -> None:
        dense = {name: _dense(tensor) if name in names else tensor for name, tensor in call.inputs.items()}
        self._plan = make(replace(call, inputs=dense))
        self._device = device(int(call.device.partition(":")[2] or 0))
        self._copies = [
            (index, tensor.nbytes, _copy(tensor, self._device))
            for index, (name, tensor) in enumerate(call.inputs.items())
            if name in names and tensor.nbytes
        ]
        self.kernel = f"{self._plan.kernel} after a copy of {', '.join(names)}"
        self.scratch = self._plan.scratch + sum(nbytes for _, nbytes, _ in self._copies)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        addresses = list(inputs)
        held: list[int] = []
        with activate(self._device):
            try:
                for index, nbytes, launch in self._copies:
                    held.append(int(check(driver.cuMemAllocAsync(nbytes, stream), "allocating a copy of an input")))
                    launch([(0, inputs[index]), (1, held[-1])], stream)
                    addresses[index] = held[-1]
                self._plan(tuple(addresses), outputs, stream)
            finally:
                for address in held:
                    driver.cuMemFreeAsync(address, stream)


def _dense(tensor: Tensor) -> Tensor:
    return replace(tensor, strides=c_strides(tensor.shape, tensor.dtype.itemsize), alignment=16)


def _copy(tensor: Tensor, which: Device) -> Launch:
    """The launch that copies a tensor of this shape and these strides; arguments 0 and 1 are its addresses."""
    name = tensor.dtype.name

    def compiled() -> Any:
        from gradkern.cuda.compile import compile_kernel

        return compile_kernel(build(name), ARGUMENTS, which.capability, THREADS)

    key = cache.key_of(Path(__file__).parent, f"strided copy {name}", which.capability)
    kernel = load(key, which, lambda: cache.fetch(key, compiled), 0, 1)
    axes = MOST_AXES - len(tensor.shape)
    arguments = [0, 0, tensor.size, *[1] * axes, *tensor.shape, *[0] * axes, *tensor.strides]
    grid = min(-(-tensor.size // THREADS), 16 * which.processors)
    return Launch(kernel, grid, THREADS, arguments)


def build(dtype: str) -> Callable[..., None]:
    """The kernel: element i of the target is the source's element at i's index over the axes."""
    from numba import cuda
    from numba.cuda import float32, float64, int64

    from gradkern.cuda import intrinsics

    load_one = intrinsics.loader("global", dtype, 1)
    store_one = intrinsics.storer("global", dtype, 1, False)
    WORK = float64 if dtype == "float64" else float32
    ITEMSIZE = {"float64": 8, "float32": 4}.get(dtype, 2)

    def copy(
        source: int, target: int, count: int,
        d0: int, d1: int, d2: int, d3: int, d4: int, d5: int, d6: int, d7: int,
        s0: int, s1: int, s2: int, s3: int, s4: int, s5: int, s6: int, s7: int,
    ) -> None:  # fmt: skip
        value = cuda.local.array(1, WORK)
        step = int64(cuda.gridDim.x) * int64(cuda.blockDim.x)
        i = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
        while i < count:
            rest = i
            place = source
            place += rest % d7 * s7
            rest //= d7
            place += rest % d6 * s6
            rest //= d6
            place += rest % d5 * s5
            rest //= d5
            place += rest % d4 * s4
            rest //= d4
            place += rest % d3 * s3
            rest //= d3
            place += rest % d2 * s2
            rest //= d2
            place += rest % d1 * s1
            rest //= d1
            place += rest * s0
            load_one(value, place)
            store_one(target + i * ITEMSIZE, value)
            i += step

    return copy
