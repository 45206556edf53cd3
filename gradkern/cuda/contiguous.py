"""Arrays that no kernel takes as they lie: inputs copied end to end on the device before the plan runs, outputs after.

It costs one more pass over each such array, and memory for the copy, taken from the stream's own pool for the time of
the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

from gradkern.call import Call, Plan, Tensor
from gradkern.cuda.device import Device, activate, check
from gradkern.cuda.launch import Launch, kernel_of
from gradkern.cuda.rows import device_of
from gradkern.strides import c_strides

__all__ = ["ARGUMENTS", "MOST_AXES", "Gathered", "build", "scattered"]

MOST_AXES = 8
ARGUMENTS = 3 + 3 * MOST_AXES
THREADS = 256


def scattered(call: Call) -> tuple[str, ...]:
    """The inputs and outputs whose elements do not lie end to end in C order."""
    tensors = {**call.inputs, **call.outputs}
    return tuple(name for name, each in tensors.items() if each.strides != c_strides(each.shape, each.dtype.itemsize))


class Gathered:
    """A plan that runs the plan made for copies, end to end, of the named arrays."""

    def __init__(self, call: Call, names: tuple[str, ...], make: Callable[[Call], Plan]) -> None:
        inputs, outputs = (
            {name: _dense(each) if name in names else each for name, each in tensors.items()}
            for tensors in (call.inputs, call.outputs)
        )
        self._plan = make(replace(call, inputs=inputs, outputs=outputs, in_place=frozenset()))
        self._device = device_of(call)
        self._before = self._copies(call.inputs, names, back=False)
        self._after = self._copies(call.outputs, names, back=True)
        self.kernel = f"{self._plan.kernel} with copies of {', '.join(names)}"
        self.scratch = self._plan.scratch + sum(nbytes for _, nbytes, _ in (*self._before, *self._after))

    def _copies(
        self, tensors: Mapping[str, Tensor], names: tuple[str, ...], back: bool
    ) -> list[tuple[int, int, Launch]]:
        """Of every named array: its place, its bytes, and the launch that copies it."""
        return [
            (
                place,
                tensor.nbytes,
                _copy(_dense(tensor) if back else tensor, tensor if back else _dense(tensor), self._device),
            )
            for place, (name, tensor) in enumerate(tensors.items())
            if name in names and tensor.nbytes
        ]

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        read, written = list(inputs), list(outputs)
        held: list[int] = []
        with activate(self._device):
            try:
                for place, nbytes, launch in self._before:
                    held.append(int(check(driver.cuMemAllocAsync(nbytes, stream), "allocating a copy of an input")))
                    launch((inputs[place], held[-1]), stream)
                    read[place] = held[-1]
                for place, nbytes, _ in self._after:
                    held.append(int(check(driver.cuMemAllocAsync(nbytes, stream), "allocating a copy of an output")))
                    written[place] = held[-1]
                self._plan(tuple(read), tuple(written), stream)
                for place, _, launch in self._after:
                    launch((written[place], outputs[place]), stream)
            finally:
                for address in held:
                    driver.cuMemFreeAsync(address, stream)


def _dense(tensor: Tensor) -> Tensor:
    return replace(tensor, strides=c_strides(tensor.shape, tensor.dtype.itemsize), alignment=16)


def _copy(source: Tensor, target: Tensor, device: Device) -> Launch:
    """The launch that copies from the strides of one to those of the other. Its values are their addresses."""
    kernel = kernel_of(
        device, "gradkern.cuda.contiguous:build", source.dtype.name, arguments=ARGUMENTS, threads=THREADS
    )
    filled = MOST_AXES - len(source.shape)
    axes = [*[1] * filled, *source.shape], [*[0] * filled, *source.strides], [*[0] * filled, *target.strides]
    arguments = [0, 0, source.size, *(number for each in axes for number in each)]
    grid = min(-(-source.size // THREADS), 16 * device.processors)
    return Launch(kernel, grid, THREADS, arguments, changing=(0, 1))


def build(dtype: str) -> Callable[..., None]:
    """The kernel: element i over the axes d goes from its place by the strides s to its place by the strides t."""
    from numba import cuda
    from numba.cuda import float32, float64, int64

    from gradkern.cuda.device_code import intrinsics

    load_one = intrinsics.loader("global", dtype, 1)
    store_one = intrinsics.storer("global", dtype, 1, False)
    WORK = float64 if dtype == "float64" else float32

    def copy(
        source: int, target: int, count: int,
        d0: int, d1: int, d2: int, d3: int, d4: int, d5: int, d6: int, d7: int,
        s0: int, s1: int, s2: int, s3: int, s4: int, s5: int, s6: int, s7: int,
        t0: int, t1: int, t2: int, t3: int, t4: int, t5: int, t6: int, t7: int,
    ) -> None:  # fmt: skip
        value = cuda.local.array(1, WORK)
        step = int64(cuda.gridDim.x) * int64(cuda.blockDim.x)
        i = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
        while i < count:
            i7, rest = i % d7, i // d7
            i6, rest = rest % d6, rest // d6
            i5, rest = rest % d5, rest // d5
            i4, rest = rest % d4, rest // d4
            i3, rest = rest % d3, rest // d3
            i2, rest = rest % d2, rest // d2
            i1, i0 = rest % d1, rest // d1
            load_one(value, source + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4 + i5 * s5 + i6 * s6 + i7 * s7)
            store_one(target + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3 + i4 * t4 + i5 * t5 + i6 * t6 + i7 * t7, value)
            i += step

    return copy
