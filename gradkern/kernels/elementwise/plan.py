"""From a call to a launch of the element-wise block."""

from __future__ import annotations

from collections.abc import Sequence

from gradkern.call import Call, Refusal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.elementwise.config import ElementwiseTypes, configs
from gradkern.kernels.elementwise.kernel import ARGUMENTS
from gradkern.strides import is_dense, memory_order

__all__ = ["elementwise_plan"]


def elementwise_plan(call: Call, builder: str, numbers: Sequence[float] = ()) -> LaunchPlan | EmptyPlan:
    """The plan of a call with arrays of one shape, dense in one order of memory, and one output.

    builder: "module:function" of (ElementwiseTypes, ElementwiseConfig) that calls elementwise_kernel
    """
    device = device_of(call)
    (output,) = call.outputs.values()
    if output.size == 0:
        return EmptyPlan("empty", 0, device, (0,))
    tensors = [*call.inputs.values(), output]
    order = memory_order(output)
    if not all(is_dense(each, order) for each in tensors):
        raise Refusal(f"{', '.join((*call.inputs, *call.outputs))}: not dense in one order of memory")
    kinds = tuple(each.dtype.name for each in call.inputs.values())
    types = ElementwiseTypes(call.operator, kinds, output.dtype.name, tuple(numbers), device.capability >= (8, 0))
    config = next(configs(types, min(each.alignment for each in tensors)))
    grid = -(-output.size // config.block)
    if grid >= 1 << 31:
        raise Refusal(f"{grid} blocks are more than a launch can have")
    kernel = kernel_of(
        device,
        builder,
        types,
        config,
        name=kernel_name(operator_words(call.operator), *kinds[:1], config.name),
        arguments=len(ARGUMENTS),
        threads=config.threads,
    )
    given = [*(f"input_{n}" for n in range(len(kinds))), "output"]
    launch = Launch(kernel, grid, config.threads, *named(ARGUMENTS, {"size": output.size}, given))
    return LaunchPlan(f"{operator_words(call.operator)}_{config.name}", launch)
