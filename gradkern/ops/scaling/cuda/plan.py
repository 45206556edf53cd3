"""Products of arrays with numbers on a GPU: elements of the element-wise block. MixedPrecisionScale of several arrays,
or with one output for all, takes launches of up to 32 arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradkern.call import Call, Refusal
from gradkern.cuda.device_code.columns import bits_of
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
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
from gradkern.strides import is_dense, memory_order

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
            device, _BUILDER, types, config, False, ARRAYS, threads=config.threads, arguments=len(names),
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


_BUILDER = "gradkern.ops.scaling.cuda.kernel:build"


def plan(call: Call) -> LaunchPlan | NumbersPlan | EmptyPlan | SeveralPlan:
    """The plan of one of the four operators on `call.device`."""
    name = {"Scale": "scale", "MixedPrecisionScale": "S"}.get(call.operator, "")
    if name == "S" and (call.attributes.get("fuse_outputs") or len(call.inputs) - (name in call.inputs) > 1):
        return _several_plan(call)

    def number(values: Mapping[str, Any]) -> list[float]:
        return [values[name]]

    divides = bool(call.attributes.get("scale_down"))
    return elementwise_plan(call, _BUILDER, number if name else floats_of, on_device=name, more=(divides,))
