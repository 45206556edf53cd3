"""Runs and times candidates: on buffers with random data and on a stream that belong to the search.

The buffers have the extents, strides and alignments of the caller's arrays. Outputs are poisoned before every run, and
the L2 cache is overwritten before every timed run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol

import numpy as np

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device, OutOfMemoryError, activate, check, driver
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Kernel, Launch, kernel_of
from gradkern.search.candidate import Candidate
from gradkern.search.crosscheck import Difference, Outputs
from gradkern.search.implementation import Task
from gradkern.search.kernel_sizes import MEASURES, THREADS

Array = np.ndarray[Any, Any]

POISON = 0xFF  # the byte of a NaN in every type
FLUSH = 4  # times the L2
_ARGUMENTS = {"fill": 3, "compare": 4}  # of the kernels in gradkern.search.kernels
_ALIGNED = 256
_MOST_FETCHED = 1 << 29  # bytes of inputs, for elements to be computed in float64
_OF_EACH = 12  # indices of each of the first two axes for computed elements: enough to average out rounding errors


class Bench(Outputs, Protocol):
    """The interface of a bench for trials. Times are in seconds."""

    def run(self, candidate: Candidate) -> float:
        """One run on poisoned outputs; its results can be inspected afterwards. Raises Refusal if it fails."""
        ...

    def times(self, candidate: Candidate, repeats: int) -> list[float]:
        """Runs with a cold L2."""
        ...

    def alive(self) -> bool:
        """Whether the device still works. After a fault of a kernel it does not, in this process."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Buffer:
    """One tensor's memory: `start` is its first byte, `first` the address of its first element."""

    tensor: Tensor
    start: int
    first: int
    nbytes: int

    @property
    def elements(self) -> int:
        return self.nbytes // self.tensor.dtype.itemsize


class CudaBench:
    """A bench on a GPU. Raises OutOfMemoryError if its buffers do not fit the device."""

    def __init__(self, task: Task, device: Device) -> None:
        self._device = device
        self._reference = task.reference
        self._exact: list[tuple[Array, Array]] = []  # for each output, places and the reference's values there
        self._memory: list[int] = []
        self._copies: list[list[_Buffer]] = []
        self._workspace, self._workspace_size = 0, 0
        self._events: list[Any] = []
        self._blocks = 8 * device.processors
        with activate(device):
            try:
                check(driver.cuCtxSynchronize(), "waiting for the device before a search")  # else times are noise
                self._stream = _stream(device)
                self._inputs = [self._buffer(each) for each in task.inputs]
                self._outputs = [self._buffer(each) for each in task.outputs]
                self._measures = self._allocate(self._blocks * 8 * MEASURES)
                attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
                l2 = check(driver.cuDeviceGetAttribute(attribute, device.index), "reading the size of the L2")
                self._flush_bytes = FLUSH * int(l2) or 1
                self._flush = self._allocate(self._flush_bytes)
                for each in self._outputs:  # else its compilation would take time from the search
                    self._launch("compare", each.tensor.dtype.name)
                for number, each in enumerate(self._inputs):
                    fill = self._launch("fill", each.tensor.dtype.name)
                    fill((each.start, each.elements, number * 7919 + 1), self._stream)
                check(driver.cuStreamSynchronize(self._stream), "filling arrays to search with")
            except BaseException:
                self.close()
                raise

    def alive(self) -> bool:
        with activate(self._device):
            return driver.cuStreamSynchronize(self._stream)[0] == driver.CUresult.CUDA_SUCCESS

    def close(self) -> None:
        with activate(self._device):
            for event in self._events:
                driver.cuEventDestroy(event)
            for address in self._memory:
                driver.cuMemFree(address)
            if self._workspace:
                driver.cuMemFree(self._workspace)
        self._events, self._memory, self._workspace = [], [], 0

    def run(self, candidate: Candidate) -> float:
        with activate(self._device):
            for each in self._outputs:
                check(driver.cuMemsetD8Async(each.start, POISON, each.nbytes, self._stream), "poisoning outputs")
            return self._timed(candidate, 1)[0]

    def times(self, candidate: Candidate, repeats: int) -> list[float]:
        with activate(self._device):
            return self._timed(candidate, repeats)

    def _timed(self, candidate: Candidate, repeats: int) -> list[float]:
        workspace = self._workspace_of(candidate.workspace)
        while len(self._events) < 2 * repeats:
            self._events.append(check(driver.cuEventCreate(0), "making an event"))
        reads, writes = (tuple(each.first for each in side) for side in (self._inputs, self._outputs))
        pairs = list(zip(self._events[: 2 * repeats : 2], self._events[1 : 2 * repeats : 2], strict=True))
        for start, end in pairs:  # the host stays ahead: a flush takes longer than enqueueing a run
            driver.cuMemsetD8Async(self._flush, 0, self._flush_bytes, self._stream)
            driver.cuEventRecord(start, self._stream)
            candidate(reads, writes, workspace, self._stream)
            driver.cuEventRecord(end, self._stream)
        check(driver.cuStreamSynchronize(self._stream), f"running {candidate.name}")
        return [check(driver.cuEventElapsedTime(start, end), "reading a time") / 1e3 for start, end in pairs]

    def _workspace_of(self, size: int) -> int:
        if size > self._workspace_size:
            if self._workspace:
                driver.cuMemFree(self._workspace)
                self._workspace, self._workspace_size = 0, 0
            try:
                self._workspace = int(check(driver.cuMemAlloc(size), f"allocating a workspace of {size:,} bytes"))
            except OutOfMemoryError as error:
                raise Refusal(str(error)) from error
            self._workspace_size = size
        return self._workspace

    # --- the results of the last run ---------------------------------------------------------------------------------

    def complete(self) -> bool:
        return all(self._measure(each, each)[2] == each.tensor.size for each in self._outputs)

    def copy(self) -> int:
        with activate(self._device):
            copies: list[_Buffer] = []
            for each in self._outputs:
                copy = self._buffer(each.tensor)
                check(driver.cuMemcpyDtoDAsync(copy.start, each.start, each.nbytes, self._stream), "copying a result")
                copies.append(copy)
        self._copies.append(copies)
        return len(self._copies) - 1

    def compare(self, copy: int) -> tuple[Difference, ...]:
        return tuple(
            _difference(self._measure(each, other))
            for each, other in zip(self._outputs, self._copies[copy], strict=True)
        )

    def errors(self, copy: int) -> tuple[float, ...] | None:
        if self._reference is None or sum(each.nbytes for each in self._inputs) > _MOST_FETCHED:
            return None
        with activate(self._device):
            check(driver.cuStreamSynchronize(self._stream), "copying a result")
            if not self._exact:
                places = tuple(_places(each.tensor.shape) for each in self._outputs)
                exact = self._reference(tuple(map(_fetched, self._inputs)), places)
                self._exact = list(zip(places, exact, strict=True))
            found = [_fetched(each) for each in self._copies[copy]]
        errors = [
            (result[tuple(places.T)].astype(np.float64) - exact, exact)
            for result, (places, exact) in zip(found, self._exact, strict=True)
        ]
        return tuple(float(np.linalg.norm(wrong) / (np.linalg.norm(exact) or 1)) for wrong, exact in errors)

    def _measure(self, a: _Buffer, b: _Buffer) -> Array:
        """The four measures of `kernels.compare`, over all elements."""
        found = np.empty((self._blocks, MEASURES))
        with activate(self._device):
            launch = self._launch("compare", a.tensor.dtype.name)
            launch((a.start, b.start, a.elements, self._measures), self._stream)
            check(
                driver.cuMemcpyDtoHAsync(found.ctypes.data, self._measures, found.nbytes, self._stream),
                "reading measures",
            )
            check(driver.cuStreamSynchronize(self._stream), "comparing results")
        return np.append(found[:, :3].sum(axis=0), found[:, 3].max())

    # --- memory and kernels ------------------------------------------------------------------------------------------

    def _buffer(self, tensor: Tensor) -> _Buffer:
        low, high = tensor.extent
        offset = (tensor.alignment % 16 - low) % 16 if tensor.alignment < 16 or low else 0
        start = self._allocate(high - low + 16) + offset
        return _Buffer(tensor, start, start - low, high - low)

    def _allocate(self, size: int) -> int:
        self._memory.append(int(check(driver.cuMemAlloc(max(size, _ALIGNED)), f"allocating {size:,} bytes to search")))
        return self._memory[-1]

    def _launch(self, name: str, dtype: str) -> Launch:
        arguments = _ARGUMENTS[name]
        return Launch(_kernel(self._device, name, dtype), self._blocks, THREADS, [0] * arguments, range(arguments))


def ask_for_kernels(task: Task, device: Device) -> None:
    """The kernels of a task's bench."""
    for name, tensors in (("fill", task.inputs), ("compare", task.outputs)):
        for dtype in dict.fromkeys(each.dtype.name for each in tensors):
            _kernel(device, name, dtype)


def _kernel(device: Device, name: str, dtype: str) -> Kernel:
    builder, called = f"gradkern.search.kernels:{name}", kernel_name("search", name, dtype)
    return kernel_of(device, builder, dtype, name=called, arguments=_ARGUMENTS[name], threads=THREADS)


_streams: dict[int, int] = {}


def _stream(device: Device) -> int:
    """The device's stream for searches: only one, as scratch memory is kept for every stream ever used."""
    if device.index not in _streams:
        handle = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "making a stream")
        _streams[device.index] = int(handle)
    return _streams[device.index]


def _places(shape: tuple[int, ...]) -> Array:
    """Indices of elements, one row each: all pairs of a few indices in the first two axes, arbitrary in the others."""
    random = np.random.default_rng(0)
    if len(shape) == 1:
        return random.integers(0, shape, (_OF_EACH**2, 1))
    first, second = (random.integers(0, size, _OF_EACH) for size in shape[:2])
    pairs = np.array(np.meshgrid(first, second)).reshape(2, -1).T
    return np.column_stack([pairs, random.integers(0, shape[2:], (len(pairs), len(shape) - 2))])


def _fetched(buffer: _Buffer) -> Array:
    """A copy on the host with the layout of the original."""
    raw = np.empty(buffer.nbytes, np.uint8)
    check(driver.cuMemcpyDtoH(raw.ctypes.data, buffer.start, buffer.nbytes), "fetching an array of a search")
    tensor = buffer.tensor
    return np.ndarray(tensor.shape, tensor.dtype, raw, buffer.first - buffer.start, tensor.strides)


def _difference(measures: Array) -> Difference:
    apart, squares, numbers, worst = (float(each) for each in measures)
    if squares == 0:  # all zeros, the result of a sum without terms
        return Difference(0.0, 0.0) if apart == 0 else Difference(float("inf"), float("inf"))
    return Difference(sqrt(apart / squares), worst / sqrt(squares / numbers))
