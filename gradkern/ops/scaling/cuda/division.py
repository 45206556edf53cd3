"""The gradients of a quotient on a GPU: the element-wise block, or a sum for each result where an array is broadcast.

Sums are float64, in an order that shapes and strides alone determine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.numbers_plan import NumbersPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.elementwise.plan import elementwise_plan
from gradkern.kernels.rows.problem import RowsAxis, merged
from gradkern.ops.scaling.cuda.division_kernel import ARGUMENTS, AXES, SUM_ARGUMENTS, DivisionConfig
from gradkern.strides import c_strides

__all__ = ["plan"]

_KERNELS = "gradkern.ops.scaling.cuda.division_kernel:"
_THREADS, _BLOCKS = 256, 8  # of a block; of a multiprocessor, at most, where sums are cut into parts
_LEAST = 32  # elements that a thread adds, where it can have so many


def plan(call: Call) -> LaunchesPlan | LaunchPlan | NumbersPlan | EmptyPlan:
    sizes, device = call.axes["sizes"], device_of(call)
    if call.inputs["A"].shape == call.inputs["B"].shape == sizes:
        return elementwise_plan(call, f"{_KERNELS}build")
    if 0 in sizes:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))
    axes = merged([each for each in _axes(call) if each.size > 1])
    if len(axes) > AXES:
        raise Refusal(f"dY, A, B: {len(axes)} dimensions that are not merged are more than the {AXES} of its kernel")
    axes = [*[RowsAxis(1, (0,) * 5)] * (AXES - len(axes)), *axes]
    made = [_step(call, name, axes, device) for name in call.outputs]
    inputs, steps = range(len(call.inputs)), list[tuple[Launch, tuple[int, ...]]]()
    scratch = len(inputs) + len(made)  # its place, behind those of the outputs
    for output, (parts, total, _, _) in enumerate(made, len(inputs)):
        steps.append((parts, (*inputs, output if total is None else scratch)))
        if total is not None:
            steps.append((total, (scratch, output)))
    launches, places = zip(*steps, strict=True)
    names, memory = ", ".join(name for _, _, name, _ in made), max(each[3] for each in made)
    return LaunchesPlan(names, memory, launches, places, (0,) if memory else (), device)


def _axes(call: Call) -> list[RowsAxis]:
    """With the strides of dY, A and B, and of dA and dB in C order; 0 where an array is broadcast."""
    sizes, rank = call.axes["sizes"], len(call.axes["sizes"])

    def along(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
        found = [stride if size > 1 else 0 for size, stride in zip(shape, strides, strict=True)]
        return [0] * (rank - len(shape)) + found

    arrays = [along(each.shape, each.strides) for each in call.inputs.values()]
    arrays += [along(call.inputs[name].shape, c_strides(call.inputs[name].shape, 1)) for name in ("A", "B")]
    return [RowsAxis(size, tuple(each[n] for each in arrays)) for n, size in enumerate(sizes)]


def _step(call: Call, name: str, axes: list[RowsAxis], device: Device) -> tuple[Launch, Launch | None, str, int]:
    """The launches of a result, the name of its kernel, and bytes of scratch memory."""
    output, of_B = call.outputs[name], name == "dB"
    require_flat(name, output)
    kept = tuple(axis.strides[3 + of_B] != 0 for axis in axes)
    count = output.size
    reduced = prod(axis.size for axis in axes) // count
    widest = 1 << max(0, (reduced if not kept[-1] else count) - 1).bit_length()
    beside = min(_THREADS, widest)  # threads along the innermost axis
    lanes = beside if not kept[-1] else _THREADS // beside
    lanes = min(lanes, 1 << (reduced - 1).bit_length())
    tiles = -(-count // (_THREADS // lanes))
    parts = max(1, min(-(-reduced // (lanes * _LEAST)), _BLOCKS * device.processors // tiles))
    span = -(-reduced // parts)
    if max(count, reduced, tiles * parts) >= 1 << 31:
        raise Refusal(f"{name}: {count} sums of {reduced} elements are more than its kernel counts")
    native = device.capability >= (8, 0)
    config = DivisionConfig(
        output.dtype.name, of_B, kept, lanes, parts == 1, native, _THREADS, 1 if reduced == 1 else 4
    )
    words = kernel_name("div_grad", name, output.dtype.name, config.name)
    kernel = kernel_of(device, f"{_KERNELS}build_parts", config, name=words, arguments=len(ARGUMENTS), threads=_THREADS)
    numbers = {"count": count, "reduced": reduced, "span": span, "tiles": tiles}
    for n, axis in enumerate(axes):
        numbers[f"size_{n}"] = axis.size
        numbers |= {f"{each}_stride_{n}": axis.strides[m] for m, each in enumerate(("dY", "A", "B"))}
    arguments = named(ARGUMENTS, numbers, ("dY", "A", "B", "result"))
    launch, total = Launch(kernel, tiles * parts, _THREADS, *arguments), None
    if parts > 1:
        kernel = kernel_of(
            device, f"{_KERNELS}build_sum", output.dtype.name, _THREADS, native,
            name=kernel_name("div_grad_sum", output.dtype.name), arguments=len(SUM_ARGUMENTS), threads=_THREADS,
        )  # fmt: skip
        given = named(SUM_ARGUMENTS, {"count": count, "number": parts}, ("parts", "result"))
        total = Launch(kernel, -(-count // _THREADS), _THREADS, *given)
    return launch, total, words, 8 * count * parts if parts > 1 else 0
