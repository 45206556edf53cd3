"""BatchNormalizationGrad by cuDNN. Each of its functions is a candidate in each of its modes.

Vectors whose form cuDNN does not take go through the workspace: scale, statistics and gradients of parameters with gaps
or with another type than the arithmetic's; and outputs that are not requested, because cuDNN computes all. dX over dY
or X is refused: cuDNN does not document it, and a search cannot test it, because its arrays have separate memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device, activate
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, kernel_of
from gradkern.cudnn.api import BATCH_NORM_MODES, DATA_TYPES
from gradkern.cudnn.library import CudnnError
from gradkern.cudnn.library import version as library_version
from gradkern.ops.batch_norm.cuda.cudnn_calls import Extended, Layout, Operands, Plain
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.search.candidate import Note
from gradkern.strides import is_dense

_INPUTS = {"dY": "dY", "X": "X", "Scale": "scale", "saved_mean": "mean", "saved_inv_std": "inv_std"}
_OUTPUTS = ("dX", "dScale", "dBias")
_DATA = ("dY", "X", "dX")
_MOST_ELEMENTS = (1 << 31) - 1
_MOST_ADDED = 1 << 17
"""The most elements of a channel for spatial mode in float32, so that the error of sums stays below 1e-6: it was 1.1e-6
with 280,000 elements, 4e-6 with a million (9.19, H200).
"""
_ALIGNED = 256  # bytes: alignment of arrays in the workspace
_VECTORS_ALIGNED = 16
_THREADS = 256


class CudnnCandidate:
    """One function, with the launches that convert vectors to its type and back."""

    def __init__(self, problem: Problem, device: Device, route: Plain) -> None:
        self.problem, self.device, self.route = problem, device, route
        self.name, self.origin, self.recipe = route.name, route.origin, route.recipe
        tensors = dict(zip(_INPUTS, problem.inputs, strict=True)) | {
            name: each for name in _OUTPUTS if (each := getattr(problem, name)) is not None
        }
        self._tensors: dict[str, Tensor] = tensors
        self._copied = [name for name, each in tensors.items() if name not in _DATA and not self._is_taken(each)]
        self.notes: frozenset[Note] = frozenset({"compiles_once"} if self._copied else ())
        self.workspace = 0
        self._is_ready = False

    def _is_taken(self, vector: Tensor) -> bool:
        """Whether cuDNN can use the caller's vector."""
        dense = is_dense(vector) and vector.alignment >= _VECTORS_ALIGNED
        return dense and vector.dtype.name == self.problem.work

    def prepare(self) -> None:
        """Finish plans, compile kernels. Raises Refusal with cuDNN's message."""
        if self._is_ready:
            return
        try:
            with activate(self.device) if self.device.context is not None else nullcontext():
                self.route.prepare()
                self._lay_out()
        except CudnnError as error:
            raise Refusal(str(error)) from error
        self._is_ready = True

    def _lay_out(self) -> None:
        """The place of each operand of the route: one of the call's arrays, or an offset in the workspace."""
        places = {name: place for place, name in enumerate(self._tensors)}
        copies: dict[str, int] = {}
        end = self.route.workspace
        for name in (*_INPUTS, *_OUTPUTS):
            if name not in places or name in self._copied:
                copies[name] = -(-end // _ALIGNED) * _ALIGNED
                end = copies[name] + self._bytes(name)
        self.workspace = end
        own = {operand: name for name, operand in _INPUTS.items()}
        names = [own.get(operand, operand) for operand in Operands._fields]
        self._operands = [(places.get(name, 0), copies.get(name)) for name in names]
        self._before = self._casts([name for name in self._copied if name in _INPUTS], places, copies)
        self._after = self._casts([name for name in self._copied if name in _OUTPUTS], places, copies)

    def _bytes(self, name: str) -> int:
        if name == "dX":
            return self.problem.X.nbytes
        return self.problem.channels * np.dtype(self.problem.work).itemsize

    def _casts(
        self, names: list[str], places: Mapping[str, int], copies: Mapping[str, int]
    ) -> list[tuple[Launch, list[tuple[int, int]]]]:
        """One launch for the vectors of each type, with each vector's place and the offset of its copy."""
        launches: list[tuple[Launch, list[tuple[int, int]]]] = []
        for dtype in dict.fromkeys(self._tensors[name].dtype.name for name in names):
            group = [name for name in names if self._tensors[name].dtype.name == dtype]
            is_output = group[0] in _OUTPUTS
            launch = cast([self._tensors[name] for name in group], self.problem.work, is_output, self.device)
            launches.append((launch, [(places[name], copies[name]) for name in group]))
        return launches

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if not self._is_ready:
            raise RuntimeError(f"{self.name} is called before it is prepared")
        arrays = inputs + outputs
        for launch, vectors in self._before:
            launch([each for place, copy in vectors for each in (arrays[place], workspace + copy)], stream)
        operands = [arrays[place] if copy is None else workspace + copy for place, copy in self._operands]
        self.route.run(Operands(*operands), workspace, stream)
        for launch, vectors in self._after:
            launch([each for place, copy in vectors for each in (workspace + copy, arrays[place])], stream)


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """Functions and modes. Raises Refusal if cuDNN cannot describe the arrays, or for more than the plain gradient."""
    if not problem.plain:
        raise Refusal("it has no activation, second gradient or residual here")
    modes = list(BATCH_NORM_MODES) if problem.mode == "auto" else [problem.mode]
    if problem.mode == "auto" and problem.dtype == "float32" and problem.elements > _MOST_ADDED:
        modes.remove("spatial")
    for layout in _layouts(problem):
        for mode in reversed(modes):  # the persistent mode is usually faster
            yield {"route": (Extended if layout.last else Plain).kind, "layout": layout.name, "mode": mode}


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> CudnnCandidate:
    """The candidate of a config. Raises Refusal if this cuDNN or this device does not take it."""
    layout = next((layout for layout in _layouts(problem) if layout.name == config["layout"]), None)
    if layout is None:
        raise Refusal(f"the arrays have no layout {config['layout']!r}")
    kind = {each.kind: each for each in (Plain, Extended)}.get(config["route"])
    if kind is None:
        raise Refusal(f"cuDNN's {config['route']} is not used for batch norms")
    return CudnnCandidate(problem, device, kind(problem, device, layout, config["mode"]))


def version() -> str:
    """The version of cuDNN: other versions have other times."""
    return "cuDNN " + ".".join(map(str, library_version()))


def _layouts(problem: Problem) -> list[Layout]:
    """The layouts of the arrays for cuDNN: as they are, with two or three spatial axes, else with these merged into
    one. Arrays without spatial axes, or with one channel, are both channels-first and channels-last.

    Raises Refusal if there is none.
    """
    X = problem.X
    if problem.dtype not in DATA_TYPES:
        raise Refusal(f"cuDNN has no batch norm of {problem.dtype}")
    if problem.in_place:
        raise Refusal("cuDNN does not say that dX may be written over dY or X")
    if not 0 < X.size <= _MOST_ELEMENTS:
        raise Refusal(f"cuDNN takes arrays of 1 to {_MOST_ELEMENTS:,} elements; these have {X.size:,}")
    arrays = [each for name in _DATA if (each := getattr(problem, name)) is not None]
    spatial = range(2, len(X.shape))
    orders = {False: (0, 1, *spatial), True: (0, *spatial, 1)}
    layouts: list[Layout] = []
    for last, order in orders.items():
        if all(is_dense(each, order) for each in arrays):
            if len(X.shape) in (4, 5):
                layouts.append(Layout(_name("HW" if len(X.shape) == 4 else "DHW", last), X.shape, last))
            if len(X.shape) != 4:
                layouts.append(Layout(_name("L", last), (*X.shape[:2], problem.positions, 1), last))
    if not layouts:
        raise Refusal("the arrays are dense neither with channels first nor with channels last, or differ in it")
    return layouts


def _name(spatial: str, last: bool) -> str:
    return f"N{spatial}C" if last else f"NC{spatial}"


def cast(vectors: Sequence[Tensor], work: str, is_output: bool, device: Device) -> Launch:
    """The launch that copies these vectors to contiguous vectors of type `work`, or, for outputs, back.

    They have one type. The launch takes the addresses of each vector and its copy: from, to, from, to.
    """
    own, count = vectors[0].dtype.name, len(vectors)
    source, target = (work, own) if is_output else (own, work)
    step = np.dtype(work).itemsize
    channels = vectors[0].shape[0]
    arguments = [channels]
    for each in vectors:
        (stride,) = each.strides
        arguments += [0, step, 0, stride] if is_output else [0, stride, 0, step]
    arguments += [0] * (4 * (3 - count))
    builder = "gradkern.ops.batch_norm.cuda.cast_kernel:build"
    name = kernel_name("batch_norm_cast", source, target)
    kernel = kernel_of(device, builder, source, target, count, name=name, arguments=len(arguments), threads=_THREADS)
    return Launch(kernel, -(-channels // _THREADS), _THREADS, arguments, changing=range(1, 4 * count, 2))
