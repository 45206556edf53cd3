"""Products of arrays with numbers, and the gradients of a quotient, on a GPU: elements of the element-wise block.

MixedPrecisionScale of several arrays, or with one output for all, takes launches of up to 32 arrays. Gradients of a
quotient are sums along what A or B was broadcast over, in one pass with the gradient of the other one where that has
the shape of the quotient; in float64, in an order that shapes and strides alone determine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import bits_of
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.numbers_plan import NumbersPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.elementwise.config import (
    ARRAYS,
    ElementwiseConfig,
    ElementwiseTypes,
    arguments_of,
    configs,
    numbers_of,
    widest_vector,
)
from gradkern.kernels.elementwise.plan import elementwise_plan, floats_of
from gradkern.kernels.rows.problem import RowsAxis, merged
from gradkern.ops.scaling.cuda.config import ARGUMENTS, AXES, SUM_ARGUMENTS, DivisionConfig
from gradkern.strides import is_aligned, is_dense, memory_order

_KERNELS = "gradkern.ops.scaling.cuda.kernel:"
_THREADS, _BLOCKS = 256, 8  # of a block; of a multiprocessor, at most, where sums are cut into parts
_IN_FLIGHT, _LEAST = 4, 16  # vectors of a thread in flight; that it adds, where it can have so many
_BESIDE = 32  # threads along the last axis, where each has a sum
_VECTOR = 16  # bytes
Places = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SeveralPlan:
    """places: for each launch those of its arrays' inputs and outputs, with the bytes before each there. on_device: the
    first input is the number, else the last; it has this type in the kernel.
    """

    kernel: str
    launches: tuple[Launch, ...]
    places: tuple[tuple[Places, ...], ...]
    on_device: bool
    compute: str
    scratch: int = 0

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[int, ...], stream: int) -> None:
        number = inputs[0] if self.on_device else bits_of(inputs[-1], self.compute)
        for launch, places in zip(self.launches, self.places, strict=True):
            values = [number]
            for read, written, offset in places:
                values += (inputs[read], outputs[written] + offset)
            launch(values, stream)


def _several_plan(call: Call) -> SeveralPlan | EmptyPlan:
    """The plan of several arrays, or of one output for all."""
    device, on_device, outputs = device_of(call), "S" in call.inputs, list(call.outputs.values())
    arrays = [(place, *each) for place, each in enumerate(call.inputs.items()) if each[0] != "S"]
    fused, kind, source = bool(call.attributes.get("fuse_outputs")), outputs[0].dtype, arrays[0][2].dtype
    held = call.inputs["S"].dtype.name if on_device else ""
    native = device.capability >= (8, 0)
    types = ElementwiseTypes(call.operator, (source.name,), (kind.name,), ("Y",), (held,), native_bfloat16=native)
    sizes_of, done = dict[ElementwiseConfig, list[tuple[int, Places]]](), 0
    for number, (place, name, X) in enumerate(arrays):
        output, offset = outputs[0 if fused else number], done * kind.itemsize if fused else 0
        order = range(len(X.shape)) if fused else memory_order(X)
        if not (is_dense(X, order) and is_dense(output, None if fused else order)):
            raise Refusal(f"{name}: its elements are not in the output's order of memory; pass a contiguous copy")
        if X.size:
            width = widest_vector([(source.name, X.alignment, 0), (kind.name, output.alignment, offset)])
            sizes = sizes_of.setdefault(next(configs(types, width)), [])
            sizes.append((X.size, (place, 0 if fused else number, offset)))
        done += X.size
    if not sizes_of:
        return EmptyPlan("empty", 0, device, (0,) * len(outputs))
    words, names = operator_words(call.operator), arguments_of("number", ARRAYS, outputs=True)
    steps = list[tuple[Launch, tuple[Places, ...]]]()
    for config, members in sizes_of.items():
        kernel = kernel_of(
            device, f"{_KERNELS}build", types, config, False, ARRAYS, threads=config.threads, arguments=len(names),
            name=kernel_name(words, source.name, config.name, f"of_{ARRAYS}"),
        )  # fmt: skip
        for first in range(0, len(members), ARRAYS):
            sizes, places = zip(*members[first : first + ARRAYS], strict=True)
            blocks = [-(-size // config.block) for size in sizes]
            if sum(blocks) >= 1 << 31:
                raise Refusal(f"{sum(sizes)} elements are more than a launch can have")
            given = ["number", *(f"{each}_{n}" for n in range(len(sizes)) for each in ("input", "output"))]
            arguments = named(names, numbers_of(sizes, blocks, ARRAYS), given)
            steps.append((Launch(kernel, sum(blocks), config.threads, *arguments), places))
    launches, places = zip(*steps, strict=True)
    return SeveralPlan(f"{words}_of_{ARRAYS}", launches, places, on_device, types.compute)


def plan(call: Call) -> LaunchesPlan | LaunchPlan | NumbersPlan | EmptyPlan | SeveralPlan:
    """The plan of one of the operators on `call.device`."""
    if call.operator == "DivGrad":
        return _division(call)
    name = {"Scale": "scale", "MixedPrecisionScale": "S"}.get(call.operator, "")
    if name == "S" and (call.attributes.get("fuse_outputs") or len(call.inputs) - (name in call.inputs) > 1):
        return _several_plan(call)

    def number(values: Mapping[str, Any]) -> list[float]:
        return [values[name]]

    divides = bool(call.attributes.get("scale_down"))
    return elementwise_plan(call, f"{_KERNELS}build", number if name else floats_of, on_device=name, more=(divides,))


def _division(call: Call) -> LaunchesPlan | LaunchPlan | NumbersPlan | EmptyPlan:
    sizes, device, inputs = call.axes["sizes"], device_of(call), call.inputs
    if inputs["A"].shape == inputs["B"].shape == sizes:
        return elementwise_plan(call, f"{_KERNELS}build_quotient")
    if 0 in sizes:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))
    for name, each in (*inputs.items(), *call.outputs.items()):
        if not is_aligned(each):
            raise Refusal(f"{name}: an element's address is no multiple of its size; pass a contiguous copy")
    order = memory_order(inputs["dY"])
    axes = merged([each for each in _axes(call, order) if each.size > 1])
    if len(axes) > AXES:
        raise Refusal(f"dY, A, B: {len(axes)} dimensions that are not merged are more than the {AXES} of its kernel")
    axes = [*[RowsAxis(1, (0,) * 5)] * (AXES - len(axes)), *axes]
    whole = [name for name in call.outputs if inputs[name[1:]].shape == sizes]
    summed = [name for name in call.outputs if name not in whole or len(call.outputs) == 1]
    made = [_step(call, name, whole if len(call.outputs) > 1 else [], axes, order, device) for name in summed]
    names = [*inputs, *call.outputs, "parts"]
    steps = [(launch, tuple(map(names.index, places))) for launches, _, _ in made for launch, places in launches]
    launches, places = zip(*steps, strict=True)
    scratch = max(each for *_, each in made)
    name = ", ".join(name for _, name, _ in made)
    return LaunchesPlan(name, scratch, launches, places, (0,) if scratch else (), device)


def _axes(call: Call, order: Sequence[int]) -> list[RowsAxis]:
    """With the strides of dY, A and B, and of dA and dB; 0 where an array is broadcast, or not wanted."""
    sizes, rank = call.axes["sizes"], len(call.axes["sizes"])

    def along(tensor: Tensor | None) -> list[int]:
        found = zip(tensor.shape, tensor.strides, strict=True) if tensor else ()
        strides = [stride if size > 1 else 0 for size, stride in found]
        return [0] * (rank - len(strides)) + strides

    arrays = [along(each) for each in (*call.inputs.values(), call.outputs.get("dA"), call.outputs.get("dB"))]
    return [RowsAxis(sizes[n], tuple(each[n] for each in arrays)) for n in order]


def _step(
    call: Call, name: str, whole: Sequence[str], axes: list[RowsAxis], order: Sequence[int], device: Device
) -> tuple[list[tuple[Launch, tuple[str, ...]]], str, int]:
    """The launches of a sum, each with the names of its addresses, the name of its kernel, and bytes of scratch memory.
    whole: the other result, if the same launch writes it.
    """
    output, of_B, rank = call.outputs[name], name == "dB", len(order)
    missing = rank - len(output.shape)
    if not is_dense(
        output._replace(shape=(1,) * missing + output.shape, strides=(0,) * missing + output.strides), order
    ):
        raise Refusal(f"{name}: its elements are not adjacent in the memory order of dY; pass a contiguous array")
    X, other = ("B", "A") if of_B else ("A", "B")
    places = {"dY": 0, "X": 1 + of_B, "other": 2 - of_B, "written": 4 - of_B}  # among the strides
    kinds = "".join("1" if axis.size == 1 else "k" if axis.strides[3 + of_B] else "r" for axis in axes)
    beside = kinds[-1] == "k"  # neighbours in memory have a sum each
    last, item, kind = axes[-1], output.dtype.itemsize, output.dtype.name
    spread = last.strides[places["other"]] == 0
    vectors = [("dY", call.inputs["dY"]), *[("written", call.outputs[each]) for each in whole]]
    vectors += [("X", call.inputs[X]), ("X", output)] * beside + [("other", call.inputs[other])] * (not spread)
    width = 1
    if all(last.strides[places[each]] == item for each, _ in vectors):
        bounds = [
            (kind, tensor.alignment, axis.strides[places[each]]) for each, tensor in vectors for axis in axes[:-1]
        ]
        width = min(_VECTOR // item, widest_vector(bounds, last.size))
    count = output.size // (width if beside else 1)
    reduced = prod(axis.size for axis in axes) // width // count
    most = 1 << (reduced - 1).bit_length()
    if beside:
        across = min(_BESIDE if reduced > 1 else _THREADS, 1 << (count - 1).bit_length())
        lanes = min(max(1, _THREADS // across), most)
    else:
        lanes = min(_THREADS, max(1, most // _IN_FLIGHT))
    tiles = -(-count // (_THREADS // lanes))
    parts = max(1, min(-(-reduced // (lanes * _LEAST)), _BLOCKS * device.processors // tiles))
    span = -(-reduced // parts)
    if max(count, reduced, tiles * parts) >= 1 << 31:
        raise Refusal(f"{name}: {count} sums of {reduced} elements are more than its kernel counts")
    native, in_flight = device.capability >= (8, 0), 1 if reduced == 1 else _IN_FLIGHT
    config = DivisionConfig(
        kind, of_B, bool(whole), width, spread, kinds, lanes, parts == 1, native, _THREADS, in_flight
    )
    words = kernel_name("div_grad", name, *whole, kind, config.name)
    kernel = kernel_of(device, f"{_KERNELS}build_parts", config, name=words, arguments=len(ARGUMENTS), threads=_THREADS)
    numbers = {"count": count, "reduced": reduced, "span": span, "tiles": tiles}
    for n, axis in enumerate(axes):
        step = width if n == AXES - 1 else 1
        numbers[f"size_{n}"] = axis.size // step
        numbers |= {f"{each}_stride_{n}": axis.strides[place] * step for each, place in places.items()}
    given = {"dY": "dY", "X": X, "other": other, "result": name if parts == 1 else "parts"}
    given |= dict(zip(("written",), whole, strict=False))
    launches = [
        (Launch(kernel, tiles * parts, _THREADS, *named(ARGUMENTS, numbers, list(given))), tuple(given.values()))
    ]
    if parts > 1:
        across = min(_BESIDE, 1 << (output.size - 1).bit_length())
        lanes = max(1, min(_THREADS // across, 1 << (parts - 1).bit_length()))
        kernel = kernel_of(
            device, f"{_KERNELS}build_sum", kind, lanes, _THREADS, native,
            name=kernel_name("div_grad_sum", kind, f"{lanes}_lanes"), arguments=len(SUM_ARGUMENTS), threads=_THREADS,
        )  # fmt: skip
        arguments = named(SUM_ARGUMENTS, {"count": output.size, "number": parts}, ("parts", "result"))
        grid = -(-output.size // (_THREADS // lanes))
        launches.append((Launch(kernel, grid, _THREADS, *arguments), ("parts", name)))
    return launches, words, 8 * output.size * parts if parts > 1 else 0
