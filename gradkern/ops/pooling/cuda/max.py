"""Max pooling and its gradient on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device_code.columns import reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.separable.axis_map import Windows, reach
from gradkern.kernels.separable.config import SPATIAL_ARGUMENTS, axis_numbers, axis_values
from gradkern.kernels.separable.layout import Layout
from gradkern.ops.pooling.cuda.config import MOST_REACH, ForwardConfig, MaxPoolConfig, PatchConfig
from gradkern.ops.pooling.windows import PoolWindows

__all__ = ["PATCHES", "launched", "plan"]

PATCHES = "gradkern.ops.pooling.cuda.patch_kernel:build"
_PLACES = {"dY": "first", "X": "first", "dX": "third", "Y": "third"}


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    """The plan of MaxPool or of MaxPoolGrad."""
    device, tensors = device_of(call), {**call.inputs, **call.outputs}
    gradient = call.operator == "MaxPoolGrad"
    if all(each.size == 0 for each in call.outputs.values()):
        return EmptyPlan("empty", 0, device, (0,) * len(call.outputs))
    model = call.outputs["dX"] if gradient else next(iter(call.outputs.values()))._replace(dtype=call.inputs["X"].dtype)
    indices = tensors.get("Indices")
    if indices is not None and gradient and indices.size == 0:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))
    layout = Layout.of(model, tensors, ("dX",) if gradient else ())
    if layout.last:  # every array is read or written in vectors of channels
        layout = Layout.of(model, tensors, tuple(tensors))
    elif not gradient:  # a thread has one output: those of neighbours are apart in X
        layout = Layout(False, 1)
    windows, shape = PoolWindows.of(call), model.shape
    local = indices is not None and indices.dtype.itemsize == 1
    in_tensor = not local and call.attributes["index_base"] == "tensor"
    inputs, outputs = prod(windows.inputs), prod(windows.outputs)
    sizes = windows.inputs, windows.outputs, windows.kernel, windows.strides, windows.dilations, windows.begins
    along = [Windows(*each) for each in zip(*sizes, strict=True)]
    if max(inputs, outputs, *map(reach, along)) >= 1 << 31:
        raise Refusal(f"a plane of {inputs} elements, of {outputs} outputs, or its windows, are too large")
    config = MaxPoolConfig(
        call.operator,
        tensors["dY" if gradient else "X"].dtype.name,
        layout.last,
        layout.lanes,
        local,
        set(windows.dilations) != {1},
        "Y" in tensors or gradient,
        indices is not None,
        device.capability >= (8, 0),
    )
    if gradient:
        small, of_small = _patched(config, windows, in_tensor, tensors), PATCHES
    else:
        small, of_small = _forward(config, windows, tensors), "gradkern.ops.pooling.cuda.forward_kernel:build"
    any_windows = config, "gradkern.ops.pooling.cuda.max_kernel:build"
    config, builder = any_windows if small is None else (small, of_small)
    numbers, grid = Layout(layout.last, config.lanes).numbers(shape, config.threads, config.patch)
    numbers |= axis_values([(*axis_numbers(each, config.compute)[:8], *reciprocal(each.dilation)) for each in along])
    numbers |= {"channels": shape[1] if layout.last else 1, "plane_step": inputs if in_tensor else 0}
    return launched(call, builder, config, numbers, grid)


def launched(
    call: Call, builder: str, config: MaxPoolConfig | PatchConfig | ForwardConfig, numbers: Mapping[str, int], grid: int
) -> LaunchPlan:
    """The launch of a kernel of SPATIAL_ARGUMENTS."""
    words = operator_words(call.operator)
    kernel = kernel_of(
        device_of(call),
        builder,
        config,
        name=kernel_name(words, config.data, config.name),
        arguments=len(SPATIAL_ARGUMENTS),
        threads=config.threads,
    )
    given = [_PLACES.get(name, "second") for name in (*call.inputs, *call.outputs)]
    launch = Launch(kernel, grid, config.threads, *named(SPATIAL_ARGUMENTS, numbers, given))
    return LaunchPlan(f"{words}_{config.name}", launch)


def _patched(
    config: MaxPoolConfig, windows: PoolWindows, in_tensor: bool, tensors: Mapping[str, Tensor]
) -> PatchConfig | None:
    """The config of a pool of small windows that touch or overlap; None of others."""
    numbers = windows.kernel, windows.strides, windows.dilations, windows.begins
    axes = tuple(zip(*(each[1:] for each in numbers), strict=True))
    if any(stride > 2 or (kernel - 1) * dilation > MOST_REACH for kernel, stride, dilation, _ in axes):
        return None
    # of channels that are last: as many as one access has indices of, or threads would not read side by side
    lanes = config.lanes if config.local or not config.last else min(2, config.lanes)
    side = 4 if lanes < config.lanes else 2
    rows, columns = (1 if windows.inputs[1] == 1 else side), (side if config.last else max(2, lanes))
    group = columns // windows.strides[2]
    aligned = all(each.alignment >= min(16, group * each.dtype.itemsize) for each in tensors.values())
    if config.last or not aligned or windows.outputs[2] % group:
        group = 0
    return PatchConfig(
        config.data,
        config.last,
        lanes,
        config.local,
        axes,
        (rows, columns),
        group,
        in_tensor,
        windows.kernel[0] == windows.inputs[0] == windows.outputs[0] == 1,
        False,
        config.native_bfloat16,
    )


def _forward(config: MaxPoolConfig, windows: PoolWindows, tensors: Mapping[str, Tensor]) -> ForwardConfig | None:
    """The config of a pool of small windows in one or two dimensions; None of others."""
    axes = tuple(zip(windows.kernel[1:], windows.strides[1:], windows.begins[1:], strict=True))
    flat = windows.kernel[0] == windows.inputs[0] == windows.outputs[0] == 1
    if not flat or config.dilated or max(windows.kernel) > 1 + MOST_REACH or windows.strides[2] > 2:
        return None
    outputs = 1 if config.last else 4
    group = outputs * windows.strides[2]
    aligned = all(
        each.alignment >= min(16, (group if name == "X" else outputs) * each.dtype.itemsize)
        for name, each in tensors.items()
    )
    group = group if aligned and not config.last and windows.inputs[2] % group == 0 else 0
    lanes = config.lanes if config.last else outputs if aligned and windows.outputs[2] % outputs == 0 else 1
    return ForwardConfig(
        config.data,
        config.last,
        lanes,
        config.local,
        axes,
        outputs,
        group,
        config.values,
        config.indices,
        config.native_bfloat16,
    )
