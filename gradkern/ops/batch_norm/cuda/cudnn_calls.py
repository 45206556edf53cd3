"""cuDNN's functions for a batch norm's gradient, each for one layout of the arrays.

Both accept any statistics and write all of dX, dScale and dBias. Neither documents that dX may overlap X or dY. The
graph API's norm backward is not used: it won none of 208 searches on an H100 and an H200.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cudnn.api import BATCH_NORM_ALONE, BATCH_NORM_MODES, DATA_TYPES
from gradkern.cudnn.device import handle
from gradkern.cudnn.library import check, library
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.strides import c_strides

_ALIGNED = 16
_PLAIN_ALIGNED = 4  # with 16-bit data at an odd multiple of 2 bytes it faulted (9.19, H200)
_EPSILON = 1e-5  # no effect with given statistics; it must not be negative


class TensorDescriptor:
    """The type, sizes and strides (in elements) of a tensor. Raises CudnnError with cuDNN's reason where it refuses."""

    __slots__ = ("_destroy", "pointer")

    def __init__(self, dtype: str, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
        lib = library()
        self.pointer = 0
        self._destroy: Callable[[int], int] = lib.cudnnDestroyTensorDescriptor  # also while Python shuts down
        made = ctypes.c_void_p()
        check(lib.cudnnCreateTensorDescriptor(ctypes.byref(made)), "creating a tensor's descriptor")
        self.pointer = made.value or 0
        numbers = ctypes.c_int * len(sizes)
        status = lib.cudnnSetTensorNdDescriptor(
            self.pointer, DATA_TYPES[dtype], len(sizes), numbers(*sizes), numbers(*strides)
        )
        check(status, "describing a tensor")

    def __del__(self) -> None:
        if self.pointer:
            self._destroy(self.pointer)


class Operands(NamedTuple):
    """The addresses of a call."""

    X: int
    dY: int
    scale: int
    mean: int
    inv_std: int
    dX: int
    dScale: int
    dBias: int


@dataclass(frozen=True, slots=True)
class Layout:
    """dY, X and dX for cuDNN: dense arrays of these sizes, with channels before the positions or `last`."""

    name: str
    sizes: tuple[int, ...]
    last: bool

    @property
    def strides(self) -> tuple[int, ...]:
        if not self.last:
            return c_strides(self.sizes, 1)
        batch, channels, *positions = self.sizes
        first, *middle, last = c_strides((batch, *positions, channels), 1)
        return (first, last, *middle)

    @property
    def vector(self) -> tuple[int, ...]:
        """The sizes of arrays with one element for each channel."""
        return (1, self.sizes[1], *(1,) * (len(self.sizes) - 2))


class Plain:
    """cudnnBatchNormalizationBackward, in one of its modes: for channels first. With channels last it takes sixty times
    as long as other candidates.

    spatial_persistent adds in scaled integers: it is faster, but according to the documentation it may overflow to
    infinity and NaN for large finite numbers where spatial does not.

    `workspace` is known after `prepare`, that raises CudnnError or Refusal. Scale, statistics and the gradients of the
    parameters are contiguous and have the type of the arithmetic.
    """

    kind: ClassVar[str] = "plain"
    origin = "cudnn_batch_norm"

    def __init__(self, problem: Problem, device: Device, layout: Layout, mode: str) -> None:
        self.problem, self.device, self.layout, self.mode = problem, device, layout, mode
        self.name = f"cudnn_{layout.name}_{mode}"
        self.recipe: Mapping[str, Any] = {"route": self.kind, "layout": layout.name, "mode": mode}
        self.workspace = 0
        self._mode = BATCH_NORM_MODES[mode]

    def prepare(self) -> None:
        _check_aligned(self.problem, _PLAIN_ALIGNED)
        work = self.problem.work
        self._data = TensorDescriptor(self.problem.dtype, self.layout.sizes, self.layout.strides)
        self._vector = TensorDescriptor(work, self.layout.vector, c_strides(self.layout.vector, 1))
        number = ctypes.c_double if work == "float64" else ctypes.c_float
        self._numbers = number(1), number(0)  # the results replace the previous contents
        self._factors = tuple(map(ctypes.addressof, self._numbers * 2))
        self._function = library().cudnnBatchNormalizationBackward

    def run(self, operands: Operands, workspace: int, stream: int) -> None:
        del workspace
        X, dY, scale, mean, inv_std, dX, dScale, dBias = operands
        data, vector = self._data.pointer, self._vector.pointer
        status = self._function(
            handle(self.device.index).on(stream),
            self._mode,
            *self._factors,
            *(data, X, data, dY, data, dX),
            *(vector, scale, dScale, dBias),
            *(_EPSILON, mean, inv_std),
        )
        if status:
            check(status, f"running {self.name}")


class Extended(Plain):
    """cudnnBatchNormalizationBackwardEx, for channels last; its fast kernels are those of spatial_persistent.

    Its reserve space comes from the forward pass. A gradient from statistics alone has none, so the function is used
    only if cuDNN reports 0 bytes for a batch norm without an activation.
    """

    kind: ClassVar[str] = "extended"
    origin = "cudnn_batch_norm_ex"

    def __init__(self, problem: Problem, device: Device, layout: Layout, mode: str) -> None:
        super().__init__(problem, device, layout, mode)
        self.name = f"cudnn_{layout.name}_ex_{mode}"

    def prepare(self) -> None:
        _check_aligned(self.problem, _ALIGNED)
        super().prepare()
        lib, data = library(), self._data.pointer
        what = handle(self.device.index).address, self._mode, BATCH_NORM_ALONE
        size = ctypes.c_size_t()
        status = lib.cudnnGetBatchNormalizationTrainingExReserveSpaceSize(*what, None, data, ctypes.byref(size))
        check(status, "asking for the size of a reserve space")
        if size.value:
            raise Refusal(f"cuDNN wants {size.value:,} bytes of reserve space, and only a forward pass can fill it")
        status = lib.cudnnGetBatchNormalizationBackwardExWorkspaceSize(
            *what, *(data, None, data, None, data), self._vector.pointer, None, ctypes.byref(size)
        )
        check(status, "asking for the size of a workspace")
        self.workspace = size.value
        self._function = lib.cudnnBatchNormalizationBackwardEx

    def run(self, operands: Operands, workspace: int, stream: int) -> None:
        X, dY, scale, mean, inv_std, dX, dScale, dBias = operands
        data, vector = self._data.pointer, self._vector.pointer
        status = self._function(
            *(handle(self.device.index).on(stream), self._mode, BATCH_NORM_ALONE),
            *self._factors,
            *(data, X, None, None, data, dY, None, None, data, dX),
            *(vector, scale, None, dScale, dBias),
            *(_EPSILON, mean, inv_std, None),
            *(workspace if self.workspace else None, self.workspace, None, 0),
        )
        if status:
            check(status, f"running {self.name}")


def _check_aligned(problem: Problem, alignment: int) -> None:
    for name in ("dY", "X", "dX"):
        array = getattr(problem, name)
        if array is not None and array.alignment < alignment:
            raise Refusal(f"{name}: its kernels want arrays at multiples of {alignment} bytes")
