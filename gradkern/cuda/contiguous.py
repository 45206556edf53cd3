"""Arrays that no kernel takes as they lie: inputs copied end to end on the device before the plan runs, outputs after.

It costs one more pass over each such array, and memory for the copy, taken from the stream's own pool for the time of
the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from gradkern.call import Call, Plan, Provisional, Tensor
from gradkern.cuda.device import Device, activate, check
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, kernel_of
from gradkern.cuda.rows import device_of
from gradkern.strides import c_strides

driver: Any = import_module("cuda.bindings.driver")  # it has no types

__all__ = ["MOST_AXES", "Gathered", "scattered", "wrap"]

MOST_AXES = 8
ARGUMENTS = 3 + 3 * MOST_AXES
THREADS = 256


def scattered(call: Call) -> tuple[str, ...]:
    """The inputs and outputs whose elements do not lie end to end in C order."""
    tensors = {**call.inputs, **call.outputs}
    return tuple(name for name, each in tensors.items() if each.strides != c_strides(each.shape, each.dtype.itemsize))


def wrap(call: Call, make: Callable[[Call], Plan], names: tuple[str, ...] = ()) -> Plan | None:
    """The plan of a call of which these arrays, or all with gaps or in another order, are copied; None of no such."""
    names = names or scattered(call)
    return Gathered(call, names, make) if names else None


class Gathered:
    """A plan that runs the plan made for copies, end to end, of the named arrays."""

    def __init__(self, call: Call, names: tuple[str, ...], make: Callable[[Call], Plan]) -> None:
        inputs, outputs = (
            {name: _dense(each) if name in names else each for name, each in tensors.items()}
            for tensors in (call.inputs, call.outputs)
        )
        in_place = frozenset(pair for pair in call.in_place if not {*pair} & {*names})
        self._plan = make(replace(call, inputs=inputs, outputs=outputs, in_place=in_place))
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

    @property
    def provisional(self) -> bool:
        return isinstance(self._plan, Provisional) and self._plan.provisional

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
    return tensor._replace(strides=c_strides(tensor.shape, tensor.dtype.itemsize), alignment=16)


def _copy(source: Tensor, target: Tensor, device: Device) -> Launch:
    """The launch that copies from the strides of one to those of the other. Its values are their addresses."""
    dtype, builder = source.dtype.name, "gradkern.cuda.device_code.strided_copy:build"
    name = kernel_name("strided_copy", dtype)
    kernel = kernel_of(device, builder, dtype, name=name, arguments=ARGUMENTS, threads=THREADS)
    filled = MOST_AXES - len(source.shape)
    axes = [*[1] * filled, *source.shape], [*[0] * filled, *source.strides], [*[0] * filled, *target.strides]
    arguments = [0, 0, source.size, *(number for each in axes for number in each)]
    grid = min(-(-source.size // THREADS), 16 * device.processors)
    return Launch(kernel, grid, THREADS, arguments, changing=(0, 1))
