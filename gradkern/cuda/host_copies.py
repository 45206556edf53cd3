"""Host arrays on a GPU, if the caller names the provider: copied to the device, computed, copied back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradkern.call import Call, Plan, Provisional, Tensor
from gradkern.cuda.device import activate, check, driver, get_device
from gradkern.strides import c_strides

DEVICE = "cuda:0"
ALIGNMENT = 16  # of every address that the driver allocates, at least


def wrap(call: Call, make: Callable[[Call], Plan], names: tuple[str, ...] = ()) -> Plan:
    """The plan of a call on host arrays: all of them are copied."""
    return Staged(call, make)


class Staged:
    """A plan for NumPy arrays that runs another one on the first GPU. It returns when the results are on the host."""

    def __init__(self, call: Call, make: Callable[[Call], Plan]) -> None:
        self._inputs = tuple(_on_device(tensor) for tensor in call.inputs.values())
        self._outputs = tuple(_on_device(tensor) for tensor in call.outputs.values())
        there = replace(
            call,
            inputs=dict(zip(call.inputs, self._inputs, strict=True)),
            outputs=dict(zip(call.outputs, self._outputs, strict=True)),
            device=DEVICE,
        )
        places = {name: place for place, name in enumerate(call.inputs)}
        same = {target: places[source] for source, target in call.in_place}
        self._same = [same.get(name) for name in call.outputs]  # the input that an output is written over
        self._plan = make(there)
        self._device = get_device(0)
        self.kernel = self._plan.kernel
        self.scratch = self._plan.scratch + sum(max(each.nbytes, 1) for each in self._allocated())

    def _allocated(self) -> list[Tensor]:
        new = [tensor for tensor, same in zip(self._outputs, self._same, strict=True) if same is None]
        return [*self._inputs, *new]

    @property
    def provisional(self) -> bool:
        return isinstance(self._plan, Provisional) and self._plan.provisional

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: int | None) -> None:
        stream = stream or 0
        addresses: list[int] = []
        with activate(self._device):
            try:
                for tensor in self._allocated():
                    answer = driver.cuMemAllocAsync(max(tensor.nbytes, 1), stream)
                    addresses.append(int(check(answer, "allocating memory for host arrays")))
                count = len(self._inputs)
                read, new = tuple(addresses[:count]), iter(addresses[count:])
                written = tuple([next(new) if same is None else read[same] for same in self._same])
                held = [_laid_out(array, tensor) for array, tensor in zip(inputs[:count], self._inputs, strict=True)]
                for address, array in zip(read, held, strict=True):
                    answer = driver.cuMemcpyHtoDAsync(address, _address(array), array.nbytes, stream)
                    check(answer, "copying to the device")
                self._plan(read + inputs[count:], written, stream)
                results = [_empty(tensor) for tensor in self._outputs]
                for address, array in zip(written, results, strict=True):
                    answer = driver.cuMemcpyDtoHAsync(_address(array), address, array.nbytes, stream)
                    check(answer, "copying to the host")
                check(driver.cuStreamSynchronize(stream), "waiting for the results")
            finally:
                for address in addresses:
                    driver.cuMemFreeAsync(address, stream)
        for array, result in zip(outputs, results, strict=True):
            array[...] = result


def _on_device(tensor: Tensor) -> Tensor:
    return tensor._replace(strides=c_strides(tensor.shape, tensor.dtype.itemsize), alignment=ALIGNMENT)


def _empty(tensor: Tensor) -> np.ndarray:
    return np.ndarray(tensor.shape, tensor.dtype, strides=tensor.strides)


def _laid_out(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The array with the strides of its copy on the device."""
    if array.strides == tensor.strides and array.flags.aligned:
        return array
    copy = _empty(tensor)
    copy[...] = array
    return copy


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
