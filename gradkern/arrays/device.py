"""Arrays on an NVIDIA GPU: PyTorch, CuPy, Numba, JAX, and whatever has DLPack on CUDA or __cuda_array_interface__.

Loaded with the first array that is not on the host. New outputs come from the allocator of the first input's framework.
Work runs on that framework's current stream, where its own operators would run; a library without one (JAX) is read and
written in the order of the legacy default stream, and waits for its outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from gradkern.arrays.host import handed_over, namespace_of, numpy_type
from gradkern.arrays.kind import Kind, Maker, View, dtype_of
from gradkern.arrays.torch_guards import alignment
from gradkern.call import Tensor
from gradkern.errors import ArgumentError, ProviderError
from gradkern.strides import c_strides
from gradkern.system.importing import load
from gradkern.system.providers import unavailable

LEGACY_DEFAULT_STREAM = 1  # CU_STREAM_LEGACY


def stream_handle(stream: Any, where: str) -> int:
    """The CUstream of what a caller gives as a stream: an int, or an object of cuda.core, PyTorch or CuPy."""
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair: Any = protocol() if callable(protocol) else protocol
        return int(pair[1])
    for name in ("cuda_stream", "ptr"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    raise ArgumentError(
        f"{where}: stream is of type {type(stream).__name__}; expected a handle (int), or a stream of cuda.core, "
        "PyTorch or CuPy, or one with __cuda_stream__"
    )


def refuse_capture(where: str, kind: Kind, stream: Any) -> None:
    """Raise ProviderError where the stream of a call that has no plan yet is being captured: planning compiles,
    allocates, and may time kernels.
    """
    driver = load("cuda.bindings.driver")
    handle = kind.stream() if stream is None else stream_handle(stream, where)
    status, *state = driver.cuStreamIsCapturing(driver.CUstream(handle or 0))
    implicit = status == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT  # the default stream, beside a captured one
    none = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
    if implicit or (status == driver.CUresult.CUDA_SUCCESS and state[0] != none):
        raise ProviderError(
            f"{where}: the first call of a kind cannot be captured in a graph, as it is planned then: call or prepare"
            " once before the capture to warm it"
        )


class _OnGpu:
    """A library without a current stream."""

    finish: Any = None

    def __init__(self, index: int) -> None:
        self.device, self._index = f"cuda:{index}", index

    def stream(self) -> int:
        return LEGACY_DEFAULT_STREAM


# --- PyTorch -------------------------------------------------------------------------------------------------------


def of_torch(value: Any) -> View:
    """A CUDA tensor that `gradkern.arrays.view` has found to be strided, with memory and without gradient. Raises
    TypeError for types that NumPy does not have.
    """
    address = value.data_ptr()
    dtype = numpy_type(value.dtype)
    if value.is_contiguous():  # of axes of one element it says as little as a light look does, see of_tensors
        strides = c_strides(tuple(value.shape), dtype.itemsize)
    else:
        strides = tuple(step * dtype.itemsize for step in value.stride())
    kind = torch_kind(value.get_device())
    return View(Tensor(dtype, tuple(value.shape), strides, alignment(address)), address, kind.device, kind)


class _Torch:
    finish: Any = None

    def __init__(self, index: int) -> None:
        self.device = f"cuda:{index}"
        torch = sys.modules["torch"]
        self._device = torch.device(self.device)
        self._direct = _direct_allocator(torch, index)
        current = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.stream: Callable[[], int] = (
            partial(current, index) if current else lambda: torch.cuda.current_stream(index).cuda_stream
        )

    def maker(self, tensor: Tensor) -> Maker:
        torch, direct = sys.modules["torch"], self._direct
        specification = _specification(torch, tensor)
        allocate = self.allocator([tensor])

        def new(stream: int | None) -> tuple[Any, int]:
            if stream is not None:
                handle = 0 if stream == LEGACY_DEFAULT_STREAM else stream  # PyTorch knows it by this name
                with torch.cuda.stream(torch.cuda.ExternalStream(handle, self._device)):
                    return new(None)
            array = allocate()[0] if direct is None else direct(*specification)
            return array, array.data_ptr()

        return new

    def allocator(self, tensors: Sequence[Tensor]) -> Callable[[], list[Any]]:
        torch, direct, device = sys.modules["torch"], self._direct, self._device
        wanted = [_specification(torch, each) for each in tensors]
        if direct is not None:
            return lambda: [direct(*each) for each in wanted]
        return lambda: [
            torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype in wanted
        ]


def _direct_allocator(torch: Any, index: int) -> Callable[..., Any] | None:
    """PyTorch's allocator without its dispatcher before it, as torch.compile's own code calls it: a third of the time.
    None where it is not there.
    """
    direct = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    direct = getattr(direct, "_empty_strided_cuda", None)
    if direct is None or torch.cuda.device_count() == 1:
        return direct

    def on_device(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        made = direct(shape, strides, dtype)
        if made.get_device() == index:  # it knows the current device only
            return made
        return torch.empty_strided(shape, strides, dtype=dtype, device=torch.device("cuda", index))

    return on_device


def _specification(torch: Any, tensor: Tensor) -> tuple[Any, ...]:
    """Shape, strides and type, as PyTorch has them."""
    strides = tuple([step // tensor.dtype.itemsize for step in tensor.strides])
    return tensor.shape, strides, getattr(torch, tensor.dtype.name)


torch_kind = cache(_Torch)

# --- CuPy, Numba and other holders of __cuda_array_interface__ ----------------------------------------------------


def of_cuda_interface(value: Any, where: str) -> View:
    """An array that describes its memory by __cuda_array_interface__ (version 2 or 3). Waits for the stream that it
    names, as the interface asks for.
    """
    if type(value).__module__.partition(".")[0] == "cupy":
        kind = _cupy_kind(value.device.id)
        address = value.data.ptr
        return View(Tensor(value.dtype, value.shape, value.strides, alignment(address)), address, kind.device, kind)
    try:
        interface = value.__cuda_array_interface__
        dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
        address, read_only = interface["data"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"{where} has a __cuda_array_interface__ that cannot be read: {error!r}") from error
    if interface.get("mask") is not None:
        raise ArgumentError(f"{where} is a masked array, whose mask would be lost")
    strides = interface.get("strides") or c_strides(shape, dtype.itemsize)
    if unavailable("cuda"):  # only the driver knows the array's device; no provider can take it anyway
        return View(Tensor(dtype, shape, tuple(strides), alignment(address)), address, "cuda:0", _buffer_kind(0, None))
    index = device_of(address) if address else 0
    if interface.get("stream") not in (None, LEGACY_DEFAULT_STREAM):
        _wait(index, interface["stream"], f"waiting for the stream of {where}")
    numba = type(value).__module__.partition(".")[0] == "numba"
    kind = _numba_kind(index) if numba else _buffer_kind(index, None)
    return View(Tensor(dtype, shape, tuple(strides), alignment(address)), address, kind.device, kind, not read_only)


def _wait(index: int, stream: int, doing: str) -> None:
    """Until all work of a stream is done."""
    from gradkern.cuda.device import activate, check, driver, get_device

    with activate(get_device(index)):
        check(driver.cuStreamSynchronize(stream), doing)


def device_of(address: int) -> int:
    """The number of the device that memory is on, from the driver."""
    driver = load("cuda.bindings.driver")
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, index = driver.cuPointerGetAttribute(attribute, address)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ArgumentError(f"the driver does not know the address {address:#x} of an array: {status.name}")
    return int(index)


@dataclass(frozen=True, slots=True)
class _Stream:
    """A stream's handle, for libraries that take whatever has the stream protocol."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _cupy_stream(handle: int, index: int) -> Any:
    """CuPy's object for a stream that it has not made; the way to one that all its versions knew is deprecated."""
    cupy = sys.modules["cupy"]
    make = getattr(cupy.cuda.Stream, "from_external", None)
    return cupy.cuda.ExternalStream(handle, index) if make is None else make(_Stream(handle))


class _Cupy(_OnGpu):
    def stream(self) -> int:
        return sys.modules["cupy"].cuda.get_current_stream(self._index).ptr

    def maker(self, tensor: Tensor) -> Maker:
        cupy = sys.modules["cupy"]
        device = cupy.cuda.Device(self._index)

        def new(stream: int | None) -> tuple[Any, int]:
            with device, nullcontext() if stream is None else _cupy_stream(stream, self._index):
                array = cupy.ndarray(tensor.shape, tensor.dtype, strides=tensor.strides)
            return array, array.data.ptr

        return new


class _Numba(_OnGpu):
    def maker(self, tensor: Tensor) -> Maker:
        cuda = sys.modules["numba.cuda"]

        def new(stream: int | None) -> tuple[Any, int]:
            with cuda.gpus[self._index]:
                array = cuda.device_array(tensor.shape, tensor.dtype, strides=tensor.strides)
            return array, array.__cuda_array_interface__["data"][0]

        return new


_cupy_kind, _numba_kind = cache(_Cupy), cache(_Numba)

# --- whatever speaks DLPack ----------------------------------------------------------------------------------------


def of_dlpack(value: Any, where: str, index: int) -> View:
    """An array that speaks DLPack and is on CUDA."""
    if hasattr(value, "__cuda_array_interface__") and type(value).__module__.partition(".")[0] == "cupy":
        return of_cuda_interface(value, where)
    if unavailable("cuda"):  # where the array is, is enough for the error that says that no provider can take it
        dtype: Any = getattr(value, "dtype", None)
        shape = tuple(getattr(value, "shape", ()))
        return View(Tensor(dtype, shape, c_strides(shape, 1), 1), 0, f"cuda:{index}", _buffer_kind(index, None))
    try:
        memory = load("cuda.core.utils").StridedMemoryView.from_dlpack(value, stream_ptr=LEGACY_DEFAULT_STREAM)
        dtype = np.dtype(memory.dtype)
    except Exception as error:
        raise ArgumentError(f"{where} cannot be taken by DLPack: {error}") from error
    shape = tuple(memory.shape)
    steps = memory.strides
    strides = c_strides(shape, dtype.itemsize) if steps is None else tuple(step * dtype.itemsize for step in steps)
    kind = _buffer_kind(index, namespace_of(value, where))
    tensor = Tensor(dtype, shape, strides, alignment(memory.ptr))
    return View(tensor, memory.ptr, kind.device, kind, not memory.readonly)


class _Buffer(_OnGpu):
    """Outputs in memory of cuda.core's pool, handed to the library by DLPack, or as cuda.core's own view."""

    def __init__(self, index: int, namespace: Any) -> None:
        super().__init__(index)
        self._namespace = namespace

    def maker(self, tensor: Tensor) -> Maker:
        core, view_type = load("cuda.core"), load("cuda.core.utils").StridedMemoryView

        from gradkern.cuda.device import activate, get_device

        here, owner = get_device(self._index), core.Device(self._index)
        steps = tuple(step // tensor.dtype.itemsize for step in tensor.strides)
        seen_as = tensor.dtype
        if self._namespace is not None and seen_as.name == "bfloat16":  # cuda.core does not export it by DLPack
            seen_as = np.dtype(np.uint16)

        def new(stream: int | None) -> tuple[Any, int]:
            with activate(here):
                owner.set_current()  # cuda.core wants it from every thread; it is the context that is active already
                place = owner.default_stream if stream is None else core.Stream.from_handle(stream)
                buffer = owner.allocate(max(tensor.nbytes, 1), stream=place)
            memory = view_type.from_buffer(buffer, shape=tensor.shape, strides=steps, dtype=seen_as)
            return memory, memory.ptr

        return new

    def finish(self, array: Any) -> Any:
        if self._namespace is None:
            return array
        _wait(self._index, LEGACY_DEFAULT_STREAM, "waiting for outputs")  # the library reads on streams of its own
        result = handed_over(self._namespace, "from_dlpack", array)
        return result.view(dtype_of("bfloat16")) if array.dtype == np.uint16 else result


_buffer_kind = lru_cache(maxsize=64)(_Buffer)  # bounded: a library may make a namespace anew for every call
