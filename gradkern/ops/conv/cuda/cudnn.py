"""A convolution and its gradients by cuDNN's graph API. Each engine that takes the arrays' layout is a candidate, with
each choice of knobs that heuristics or a search propose.

A convolution of one spatial axis has three layouts with different engines of cuDNN: N x C x L as it is, and as
an image of one row or one column. A bias is added in the forward pass's own graph, before its one rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device, activate
from gradkern.cudnn import engine
from gradkern.cudnn.api import DATA_TYPES, BehaviorNote, HeuristicMode, NumericalNote
from gradkern.cudnn.descriptor import Descriptor
from gradkern.cudnn.device import description
from gradkern.cudnn.engine import Config
from gradkern.cudnn.graph import addition, convolution, graph, tensor
from gradkern.cudnn.library import CudnnError
from gradkern.cudnn.library import version as library_version
from gradkern.cudnn.plan import Plan
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.geometry import Axes, Geometry
from gradkern.search.candidate import Note
from gradkern.strides import channels_last, is_dense

_LAYOUTS = {  # rank of the problem -> layout -> where its tensors get an axis of one element
    1: {"NCL": None, "NC1L": 2, "NCL1": 3},
    2: {"NCHW": None},
    3: {"NCDHW": None},
}
_DY, _X, _W, _B, _SUM = 1, 2, 3, 4, 5
"""Numbers of the tensors in the graph: Y has dY's number; a bias is added to the sum."""
_KINDS = {"dX": "convolution_backward_data", "dW": "convolution_backward_filter", "Y": "convolution_forward"}
_ORDER = {"dX": (_DY, _W, _X), "dW": (_DY, _X, _W), "Y": (_X, _W, _DY)}  # of addresses, without a bias

# Faults that cuDNN does not report, by gradient and engine; found with 9.19 on Hopper. Engines keep their numbers: from
# 9.10 to 9.28 the engine of a number has the same knobs and notes.
_ROUNDS_PARTS = {("dW", 24), ("dW", 47), ("dW", 61)}
"""Engines that round partial sums to 16 bits. cuDNN reports it for the first two with float16, but not with bfloat16.
"""
_FAULTY = {("dW", 70)}
"""Engines that are never used: dW 70 gave another gradient for float32 in NCHW, and read outside of
bfloat16 arrays in an unusual order, and left the device unusable for the process.
"""
_TAKES_ANY_PADS = {("dX", 0), ("dX", 74), ("dW", 0), ("dW", 67), ("Y", 0)}
"""Engines without tensor cores that respect the pads at the end. Some others do not, and access memory outside of the
arrays (dX 50) or compute another gradient (dW 1, 18, 20). All engines with tensor cores respect them.
"""

_ALIGNED, _ALIGNED_IN_GROUPS = 4, 16
"""Required alignment of arrays of 16-bit types, in bytes. A depthwise convolution on channels-last float16 arrays at
odd multiples of 2 failed with a misaligned address (9.19, H200), although the alignment had been passed to cuDNN.
"""


@dataclass(slots=True, eq=False)
class CudnnCandidate:
    """One engine of cuDNN with one choice of knobs, for one layout of the problem."""

    REPEATABLE: ClassVar[bool] = True  # see gradkern.call.Repeatable
    problem: Problem
    device: Device
    layout: str
    config: Config
    notes: frozenset[Note]
    made: Descriptor = field(repr=False)  # the configuration, as cuDNN has it
    workspace: int = 0
    _plan: Plan | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"cudnn_{self.layout}_{self.config.name}"

    @property
    def origin(self) -> str:
        return f"cudnn_eng{self.config.engine}"

    @property
    def recipe(self) -> Mapping[str, Any]:
        return _recipe(self.layout, self.config)

    def prepare(self) -> None:
        """Finish the plan. Raises Refusal with cuDNN's message."""
        if self._plan is not None:
            return
        device = self.device
        try:
            with activate(device) if device.context is not None else nullcontext():
                *inputs, output = _ORDER[self.problem.gradient]
                inputs += [_B] * (self.problem.B is not None)
                self._plan = Plan(self.made, description(device), device.index, (*inputs, output))
        except CudnnError as error:
            raise Refusal(str(error)) from error
        self.workspace = self._plan.workspace

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self._plan is None:
            raise RuntimeError(f"{self.name} is called before it is prepared")
        self._plan(inputs + outputs, workspace, stream)


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """Every config once: those of heuristics A and B, all engines without knobs, the fallbacks. Raises Refusal, with
    cuDNN's message, if it has none.
    """
    refusals: dict[str, None] = {}
    found = False
    for layout, config in _in_turn(_proposals(problem, device, refusals)):
        found = True
        yield _recipe(layout, config)
    if not found:
        raise Refusal("; ".join(refusals) or "cuDNN has no engine for it")


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> CudnnCandidate:
    """The candidate of a config. Raises Refusal if this cuDNN or this device does not take it."""
    try:
        return _candidate(problem, device, config["layout"], _config(config))
    except CudnnError as error:
        raise Refusal(str(error)) from error


def named(problem: Problem, device: Device, name: str) -> Mapping[str, Any] | None:
    """The config of a candidate's name."""
    library, _, rest = name.partition("_")
    layout, _, rest = rest.partition("_")
    config = Config.named(rest)
    return None if library != "cudnn" or config is None or layout not in _layouts(problem) else _recipe(layout, config)


def variations(problem: Problem, device: Device, config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The engine with other knobs: all valid choices that differ in one knob, then in two."""
    layout = config["layout"]
    for each in engine.variations(_graph(problem, layout), description(device), _config(config)):
        yield _recipe(layout, each)


def _recipe(layout: str, config: Config) -> Mapping[str, Any]:
    return {"layout": layout, "engine": config.engine, "knobs": [list(each) for each in config.knobs]}


def _config(recipe: Mapping[str, Any]) -> Config:
    return Config(recipe["engine"], tuple((type_, value) for type_, value in recipe["knobs"]))


def version() -> str:
    """The version of cuDNN: other versions have other engines and other times."""
    return "cuDNN " + ".".join(map(str, library_version()))


def _in_turn(proposals: Iterable[tuple[str, Config]]) -> Iterator[tuple[str, Config]]:
    """Each proposal once. Those that differ from an earlier one only in their layout come last: an engine usually takes
    the same time in each layout.
    """
    known: set[tuple[str, Config]] = set()
    configs: set[Config] = set()
    later: list[tuple[str, Config]] = []
    for each in proposals:
        if each in known:
            continue
        known.add(each)
        if each[1] in configs:
            later.append(each)
        else:
            configs.add(each[1])
            yield each
    yield from later


def _proposals(problem: Problem, device: Device, refusals: dict[str, None]) -> Iterator[tuple[str, Config]]:
    """Layouts and engine configurations, the most promising first; `refusals` collects reasons for missing ones."""
    graphs: dict[str, Descriptor] = {}
    for layout in _layouts(problem):
        try:
            graphs[layout] = _graph(problem, layout)
        except (CudnnError, Refusal) as error:
            refusals[str(error)] = None
    for mode in (HeuristicMode.A, HeuristicMode.B, None, HeuristicMode.FALLBACK):
        for layout, made in graphs.items():
            configs: Iterable[Config]
            try:
                configs = engine.defaults(made) if mode is None else engine.suggestions(made, description(device), mode)
            except CudnnError as error:  # some heuristics do not take every graph
                refusals[str(error)] = None
                continue
            for config in configs:
                yield layout, config


def _candidate(problem: Problem, device: Device, layout: str, config: Config) -> CudnnCandidate:
    """Raises CudnnError if the engine does not take the graph or the knobs, Refusal if it is known to be faulty."""
    made = engine.make(_graph(problem, layout), description(device), config)
    numerical, behavior = engine.notes(made)
    fault = problem.gradient, config.engine
    if fault in _FAULTY:
        raise Refusal(f"cuDNN's engine {config.engine} for {problem.gradient} is faulty")
    even = _pads_end(problem.geometry) == problem.geometry.pads_begin
    if not even and NumericalNote.TENSOR_CORE not in numerical and fault not in _TAKES_ANY_PADS:
        raise Refusal("cuDNN's engines without tensor cores ignore pads at the end")
    notes = set(_notes(problem.dtype, numerical, behavior))
    if fault in _ROUNDS_PARTS and problem.dY.dtype.itemsize == 2:
        notes.add("reduced_precision")
    return CudnnCandidate(problem, device, layout, config, frozenset(notes), made)


def _notes(dtype: str, numerical: Iterable[NumericalNote], behavior: Iterable[BehaviorNote]) -> Iterator[Note]:
    if dtype == "float32" and NumericalNote.TENSOR_CORE in numerical:
        yield "tf32"
    if NumericalNote.REDUCED_PRECISION_REDUCTION in numerical:
        yield "reduced_precision"
    if NumericalNote.DOWN_CONVERT_INPUTS in numerical:  # to float16: it overflows where float32 does not
        yield "reduced_precision"
    if NumericalNote.NONDETERMINISTIC in numerical:
        yield "nondeterministic"
    if BehaviorNote.RUNTIME_COMPILATION in behavior:
        yield "compiles"


def _layouts(problem: Problem) -> Mapping[str, int | None]:
    rank = problem.geometry.rank
    if rank not in _LAYOUTS:
        raise Refusal(f"cuDNN's convolutions have 1 to 3 spatial axes; these have {rank}")
    return _LAYOUTS[rank]


@lru_cache(maxsize=16)
def _graph(problem: Problem, layout: str) -> Descriptor:
    """The operation graph of one gradient, or of Y. Raises CudnnError, or Refusal for arrays that are not passed to
    cuDNN.

    These are weights in other orders or with gaps, arrays with gaps in another layout than their own, and arrays in
    other orders: many engines accept them, and read them as if they were dense, or outside of them (9.19).
    """
    geometry = problem.geometry
    if problem.dtype not in DATA_TYPES:
        raise Refusal(f"cuDNN computes no {problem.gradient} of {problem.dtype}")
    if min(_pads_end(geometry)) < 0:
        raise Refusal("cuDNN takes no positions of X behind all windows, as many as a stride")
    axis = _layouts(problem)[layout]
    Y, bias = "Y" if problem.gradient == "Y" else "dY", problem.B
    described = {Y: problem.dY, "X": problem.X, "W": problem.W}
    described |= {} if bias is None else {"B": bias}
    least = _ALIGNED if geometry.group == 1 else _ALIGNED_IN_GROUPS
    for name, each in described.items():
        if each.dtype.itemsize == 2 and each.alignment < least:
            reason = f"cuDNN is not trusted with {each.dtype} at odd addresses: {name} is at no multiple of {least}"
            raise Refusal(reason)
    if not _is_end_to_end(problem.W):
        raise Refusal("cuDNN takes contiguous weights, in the order (M, C, spatial) or (M, spatial, C)")
    if bias is not None and not is_dense(bias):
        raise Refusal("cuDNN takes a contiguous bias")
    for name in (Y, "X"):
        if not _is_in_order(described[name]):
            raise Refusal(f"{name}: cuDNN is trusted with the orders (N, C, spatial) and (N, spatial, C)")
    if axis is not None and not all(map(_is_end_to_end, (problem.dY, problem.X))):
        raise Refusal("cuDNN takes arrays with gaps only in the number of axes that they have")
    # If axes of one element leave it open, it is that of the other arrays, or the one for tensor cores of the type.
    last = {name: channels_last(described[name]) for name in (Y, "X", "W")}
    usual = next((each for each in last.values() if each is not None), problem.dY.dtype.itemsize == 2)
    layouts = {
        name: _layout(name, described[name], axis, usual if last[name] is None else bool(last[name]))
        for name in (Y, "X", "W")
    }
    tensors = {
        name: tensor(number, problem.dtype, *layouts[name], described[name].alignment)
        for number, name in ((_DY, Y), (_X, "X"), (_W, "W"))
    }
    compute = "float64" if problem.dtype == "float64" else "float32"
    per_axis = (geometry.strides, geometry.dilations, geometry.pads_begin, _pads_end(geometry))
    fills = (1, 1, 0, 0)
    what = convolution(
        compute, *(_lifted(each, axis and axis - 2, fill) for each, fill in zip(per_axis, fills, strict=True))
    )
    factors = {"alpha64": 1.0, "beta64": 0.0} if compute == "float64" else {"alpha": 1.0, "beta": 0.0}
    kind, gradient = _KINDS[problem.gradient], problem.gradient
    operands = {gradient if gradient == f"d{name}" else name: each for name, each in tensors.items()}
    if bias is None:
        return graph(Descriptor(kind, convolution=what, **operands, **factors))
    sizes, strides = layouts[Y]
    between = tensor(_SUM, compute, sizes, strides, alignment=16, virtual=True)
    filters, ones = sizes[1], (1,) * (len(sizes) - 2)
    steps = (filters, 1, *(filters if last[Y] else 1 for _ in ones))
    B = tensor(_B, problem.dtype, (1, filters, *ones), steps, bias.alignment)
    first = Descriptor(kind, convolution=what, **{**operands, "Y": between}, **factors)
    return graph(first, addition(compute, between, B, tensors[Y]))


def _pads_end(geometry: Geometry) -> Axes:
    """The pads at the end; equal to those at the beginning on axes where that gives the same output."""
    sizes = zip(geometry.spatial, geometry.kernel, geometry.out, strict=True)
    steps = zip(geometry.strides, geometry.dilations, geometry.pads_begin, geometry.pads_end, strict=True)
    return tuple(
        begin if (size + 2 * begin - (kernel - 1) * dilation - 1) // stride + 1 == out else end
        for (size, kernel, out), (stride, dilation, begin, end) in zip(sizes, steps, strict=True)
    )


def _layout(name: str, described: Tensor, axis: int | None, last: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides in elements. The stride of an axis of one element is set as in a dense array, because cuDNN
    derives the layout from it.
    """
    item = described.dtype.itemsize
    if any(stride % item for size, stride in zip(described.shape, described.strides, strict=True) if size > 1):
        raise Refusal(f"{name}: cuDNN takes strides of whole elements")
    sizes = _lifted(described.shape, axis, 1)
    strides = list(_lifted(tuple(stride // item for stride in described.strides), axis, 0))
    next_stride = 1
    for each in (1, *reversed(range(2, len(sizes))), 0) if last else reversed(range(len(sizes))):
        if sizes[each] == 1:
            strides[each] = next_stride
        next_stride = strides[each] * sizes[each]
    return sizes, tuple(strides)


def _is_end_to_end(described: Tensor) -> bool:
    """Whether the array is dense, with the channels before or after the positions."""
    return is_dense(described) or is_dense(described, (0, *range(2, len(described.shape)), 1))


def _is_in_order(described: Tensor) -> bool:
    """Whether the axes of more than one element are ordered as (N, C, spatial) or (N, spatial, C), with or without
    gaps.
    """
    rank = len(described.shape)
    steps = [(size, abs(stride)) for size, stride in zip(described.shape, described.strides, strict=True)]
    orders = (range(rank), (0, *range(2, rank), 1))
    along = [[steps[axis][1] for axis in order if steps[axis][0] > 1] for order in orders]
    return any(each == sorted(each, reverse=True) for each in along)


def _lifted(values: tuple[int, ...], at: int | None, fill: int) -> tuple[int, ...]:
    return values if at is None else (*values[:at], fill, *values[at:])
