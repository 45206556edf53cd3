"""Conv, ConvGrad and the transposed ones on a GPU: the fastest candidate for Y, or for each requested gradient, found
by a search.

Every result is a separate problem. Its candidates are cuDNN's engines, matrix products by cuBLAS, and gradkern's own
kernels for depthwise convolutions, for dW of few channels and for dB. All gradients run on the caller's stream: a
second one cost the host 14 to 40 microseconds a call on H200, where it saved the device 6 at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.cuda.rows import device_of
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.cuda.reference import elements
from gradkern.ops.conv.geometry import Geometry
from gradkern.ops.conv.transposed import NAMES, convolution_of, is_transposed
from gradkern.search.candidate import Candidate
from gradkern.search.implementation import Implementation, Task
from gradkern.search.plan import BoundCandidate, Choices, SearchPlan
from gradkern.search.store import SearchResult
from gradkern.search.tuner import candidate_names, choose, stored
from gradkern.strides import is_dense, layout, memory_order, overlaps_itself

SELECTS_BY_NAME = True  # of Policy.kernel
_READS = {"Y": ("X", "W", "B"), "dX": ("dY", "W"), "dW": ("dY", "X"), "dB": ("dY",)}
"""The inputs of each result. B of Y is optional."""
_MODULES = {  # by their names in the store
    "bias": "bias",
    "cudnn": "cudnn",
    "depthwise": "depthwise.candidates",
    "depthwise_mma": "depthwise.mma_candidates",
    "few_channels": "few_channels.candidates",
    "gemm": "gemm.candidates",
    "channels_last": "rearranged",
    "merged_groups": "rearranged",
}

_THREADS, _VECTORS = 256, 4  # of a block and of a thread that add a bias
_ADD_ARGUMENTS = ("Y", "B", "size", "inner", "channels")


def plan(call: Call) -> SearchPlan:
    """The plan of the winners, found by an earlier search or by one now."""
    device = device_of(call)
    problems = {name: _problem(call, name) for name in call.outputs}
    zeros = tuple(name for name, problem in problems.items() if problem.is_zero)
    wanted = [name for name, problem in problems.items() if problem.output.size and name not in zeros]
    for name in zeros:
        if "B" in call.inputs:
            raise Refusal("it has no kernel for a convolution of no channels with a bias")
        if _span(problems[name].output) != problems[name].output.nbytes:
            raise Refusal(f"{name}: it is not contiguous in memory")
    pins = _pins(call.policy.kernel, wanted)
    choices = {name: choose(_task(problems[name], device), call.policy, device, pins.get(name)) for name in wanted}
    places = tuple((list(call.outputs).index(name), call.outputs[name].nbytes) for name in zeros)
    return SearchPlan(device, choices, partial(_bound, call, device), places)


def searches(call: Call) -> Mapping[str, tuple[SearchResult | None, list[str]]]:
    """For each gradient the result of an earlier search, or else the candidates that a search would try first."""
    device = device_of(call)
    found: dict[str, tuple[SearchResult | None, list[str]]] = {}
    for name in call.outputs:
        problem = _problem(call, name)
        if problem.output.size and not problem.is_zero:
            task = _task(problem, device)
            result = stored(task, call.policy, device)
            found[name] = result, [] if result else candidate_names(task)
    return found


def _bound(call: Call, device: Device, choices: Choices) -> tuple[BoundCandidate, ...]:
    """The candidates for all results that are not zero, on the call's arrays."""
    inputs, outputs = list(call.inputs), list(call.outputs)
    biased = is_transposed(call) and "B" in inputs
    return tuple(
        BoundCandidate(
            Biased(choice.candidate, call, device) if biased else choice.candidate,
            tuple(inputs.index(each) for each in _read(call, name) if each in inputs),
            (outputs.index(name),),
        )
        for name, choice in choices.items()
    )


def _problem(call: Call, gradient: Any) -> Problem:
    """One result of the call. Raises Refusal for arrays that no candidate takes."""
    result = call.outputs[gradient]
    used = {name: call.inputs[name] for name in _read(call, gradient) if name in call.inputs} | {gradient: result}
    for name, tensor in used.items():
        item = tensor.dtype.itemsize
        if tensor.alignment < item or any(stride % item for stride in tensor.strides):
            raise Refusal(f"{name}: its elements are not aligned to their size")
    if overlaps_itself(result):
        raise Refusal(f"{gradient}: elements of it share memory")
    upstream = call.inputs.get("dY")
    if is_transposed(call):
        call, gradient = convolution_of(call), NAMES.get(gradient, gradient)
    given, W, geometry = call.inputs, call.inputs["W"], Geometry.of(call.axes, call.attributes)
    if gradient == "Y":
        return Problem("Y", result, given["X"], W, geometry, given.get("B"))
    if gradient == "dB" and upstream is not None:  # a transposed convolution's own, too
        return Problem("dB", upstream, given["X"], W, geometry, result)
    if gradient == "dX":
        return Problem("dX", given["dY"], result, W, geometry)
    return Problem("dW", given["dY"], given["X"], result, geometry)


def _read(call: Call, name: str) -> tuple[str, ...]:
    """The inputs that a result is computed from, in the order of its problem's."""
    read = _READS[name]
    return read[::-1] if name == "dW" and is_transposed(call) else read


def _span(tensor: Tensor) -> int:
    low, high = tensor.extent
    return high - low


def _task(problem: Problem, device: Device) -> Task:
    return Task(
        kind=_kind(problem),
        detail=problem.sizes,
        key=repr((problem.gradient, problem.dY, problem.B) if problem.gradient == "dB" else problem),
        inputs=problem.inputs,
        outputs=(problem.output,),
        terms=problem.terms,
        sources=_sources(problem, device),
        reference=None if problem.gradient == "dB" else partial(elements, problem),
    )


def _kind(problem: Problem) -> str:
    """The properties that most of all make a candidate slow."""
    operator = "Conv" if problem.gradient == "Y" else "ConvGrad"
    words = [operator, problem.gradient, problem.dtype, layout(problem.dY)]
    if problem.gradient != "dB" and problem.geometry.group > 1:
        words.insert(3, "depthwise" if problem.geometry.channels == 1 else "grouped")
    if problem.gradient == "Y" and problem.B is not None:
        words.append("bias")
    return " ".join(words)


def _sources(problem: Problem, device: Device) -> tuple[Implementation, ...]:
    """The sources of candidates for the gradient, the most promising first."""
    if problem.gradient == "dB":
        names = ["bias"]
    elif problem.geometry.group > 1 and problem.geometry.channels == 1:  # each channel has its own filters
        names = ["depthwise", "cudnn", "gemm"]
        names.insert(0 if problem.gradient == "dW" or problem.of_many_taps else 1, "depthwise_mma")
    else:
        names, copies = ["cudnn", "gemm"], ["channels_last"] * (problem.channels_last != problem)
        copies += ["merged_groups"] * problem.of_padded_groups
        names = ["few_channels", *copies, *names] if problem.of_few_channels else [*names, *copies]
    return tuple(Implementation(name, f"gradkern.ops.conv.cuda.{_MODULES[name]}", problem, device) for name in names)


def _pins(pinned: str | None, wanted: list[str]) -> dict[str, str]:
    """The kernel that the policy pins for each gradient: "dX: this; dW: that", as in a plan's `kernel`, or "this" for
    the only requested gradient.
    """
    if pinned is None:
        return {}
    pins = dict(each.split(": ", 1) for each in pinned.split("; ")) if ": " in pinned else {}
    if not pins and len(wanted) == 1:
        return {wanted[0]: pinned}
    unknown = pins.keys() - set(_READS)
    if not pins or unknown:
        raise Refusal(f"has no kernel {pinned!r}; with several gradients a pin is 'dX: NAME; dW: NAME'")
    return {name: kernel for name, kernel in pins.items() if name in wanted}


class Biased:
    """A candidate that writes a transposed convolution's Y, and the kernel that adds B to it. Its inputs are the
    candidate's and B.

    No candidate for dX of a convolution adds a bias. So Y of a 16-bit type with a bias is rounded twice, as in PyTorch.
    """

    def __init__(self, candidate: Candidate, call: Call, device: Device) -> None:
        self._candidate = candidate
        self.name, self.origin, self.notes = candidate.name, candidate.origin, candidate.notes
        self.recipe: Mapping[str, Any] = candidate.recipe
        Y = call.outputs["Y"]
        if not is_dense(Y, memory_order(Y)) or not is_dense(call.inputs["B"]):
            raise Refusal("Y and B: not contiguous in memory, where a bias is added")
        dtype, item = Y.dtype.name, Y.dtype.itemsize
        width, inner = max(1, min(Y.alignment, 16) // item), max(1, Y.strides[1] // item)
        arguments = {"size": Y.size, "inner": inner, "channels": Y.shape[1]}
        kernel = kernel_of(
            device,
            "gradkern.ops.conv.cuda.add_bias_kernel:build",
            dtype,
            width,
            _VECTORS,
            inner % width == 0,
            Y.size + width * _VECTORS * _THREADS >= 1 << 31,
            device.capability >= (8, 0),
            name=kernel_name("conv_add_bias", dtype, f"{_THREADS}x{_VECTORS}x{width}"),
            arguments=len(_ADD_ARGUMENTS),
            threads=_THREADS,
        )
        grid = -(-Y.size // (width * _VECTORS * _THREADS))
        self._launch = Launch(kernel, grid, _THREADS, *named(_ADD_ARGUMENTS, arguments, ("Y", "B")))

    @property
    def workspace(self) -> int:
        return self._candidate.workspace

    def prepare(self) -> None:
        self._candidate.prepare()

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        self._candidate(inputs[:-1], outputs, workspace, stream)
        self._launch((outputs[0], inputs[-1]), stream)
