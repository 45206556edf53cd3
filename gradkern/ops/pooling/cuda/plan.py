"""Max pooling and the gradients of pools on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device_code.columns import reciprocal
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.separable.axis_map import Windows, reach, simplified
from gradkern.kernels.separable.config import axis_numbers, axis_values, identity
from gradkern.kernels.separable.layout import Layout
from gradkern.kernels.separable.plan import launched, separable_plan
from gradkern.ops.pooling.cuda.config import MOST_REACH, MOST_WINDOWS, ForwardConfig, MaxPoolConfig, PatchConfig
from gradkern.ops.pooling.windows import PoolWindows, average, axis_maps, maximum

_PATCHES = "gradkern.ops.pooling.cuda.patch_kernel:build"


def plan(call: Call) -> LaunchPlan | LaunchesPlan | EmptyPlan:
    """The plan of max pooling or of a gradient."""
    if call.operator.startswith("MaxPool"):
        return _maximum(call)
    return _in_two(call) if "Input" in call.inputs else _average(average(call))


def _in_two(call: Call) -> LaunchPlan | LaunchesPlan | EmptyPlan:
    """DirectML's gradient of max pooling: two launches, the indices in scratch memory."""
    first, second = maximum(call)
    gradient = _maximum(second)
    if isinstance(gradient, EmptyPlan):
        return gradient
    forward = _maximum(first)
    assert isinstance(forward, LaunchPlan)  # where there is a gradient to spread there are windows
    launches, X, dY, dX, indices = (forward.launch, gradient.launch), 0, 1, 2, 3
    places = (X, indices), (dY, indices, dX)
    return LaunchesPlan(gradient.kernel, second.inputs["Indices"].nbytes, launches, places, (0,), device_of(call))


def _average(call: Call) -> LaunchPlan | EmptyPlan:
    maps = simplified(axis_maps(call))
    along = [each for each in [*(identity(maps[0]) for _ in range(3 - len(maps))), *maps] if isinstance(each, Windows)]
    dY, dX = call.inputs["dY"], call.outputs["dX"]
    is_large = max(prod(dX.shape[2:]), prod(dY.shape[2:]), *map(reach, along or maps)) >= 1 << 31
    reaching = all(each.begin <= (each.kernel - 1) * each.dilation for each in along)
    if len(along) < 3 or not reaching or is_large or 0 in (dX.size, dY.size):
        return separable_plan(call, maps)
    layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dX",))
    if layout.last:
        layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dY", "dX"))
    config = _patched(layout, along, (dY,), device_of(call).capability >= (8, 0), average=True)
    if config is None:
        return separable_plan(call, maps)
    numbers, grid = layout.numbers(dX.shape, config.threads, config.patch)
    numbers |= {"channels": dX.shape[1] if layout.last else 1}
    numbers |= axis_values([axis_numbers(each, config.compute) for each in along])
    return launched(call, _PATCHES, config, numbers, grid)


def _maximum(call: Call) -> LaunchPlan | EmptyPlan:
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
        read = tuple(call.inputs.values())
        small = _patched(layout, along, read, config.native_bfloat16, local=local, in_tensor=in_tensor)
        of_small = _PATCHES
    else:
        small, of_small = _forward(config, along, tensors), "gradkern.ops.pooling.cuda.forward_kernel:build"
    any_windows = config, "gradkern.ops.pooling.cuda.max_kernel:build"
    config, builder = any_windows if small is None else (small, of_small)
    numbers, grid = Layout(layout.last, config.lanes).numbers(shape, config.threads, config.patch)
    numbers |= axis_values([(*axis_numbers(each, config.compute)[:8], *reciprocal(each.dilation)) for each in along])
    numbers |= {"channels": shape[1] if layout.last else 1, "plane_step": inputs if in_tensor else 0}
    return launched(call, builder, config, numbers, grid)


def _patched(
    layout: Layout,
    along: Sequence[Windows],
    read: Sequence[Tensor],
    native_bfloat16: bool,
    *,
    local: bool = False,
    in_tensor: bool = False,
    average: bool = False,
) -> PatchConfig | None:
    """The config of the gradient of a pool of small windows that touch or overlap; None of others. read: dY first."""
    small = all(each.stride <= 2 and (each.kernel - 1) * each.dilation <= MOST_REACH for each in along)
    if not small or prod(-(-each.kernel // each.stride) for each in along) > MOST_WINDOWS:
        return None
    lanes, (planes, rows, columns) = _patch(layout, along, local, average)
    group = columns // along[2].stride
    aligned = all(each.alignment >= min(16, group * each.dtype.itemsize) for each in read)
    if layout.last or not aligned or along[2].output % group:
        group = 0
    return PatchConfig(
        read[0].dtype.name,
        layout.last,
        lanes,
        local,
        tuple((each.kernel, each.stride, each.dilation, each.begin) for each in along),
        (planes, rows, columns),
        group,
        in_tensor,
        along[0] == Windows(1, 1, 1),
        average,
        native_bfloat16,
    )


def _patch(layout: Layout, along: Sequence[Windows], local: bool, average: bool) -> tuple[int, tuple[int, int, int]]:
    """Lanes and the patch: a multiple of two along axes of stride 2. Where windows overlap more, a larger one loads
    fewer of them twice.
    """
    lanes, flat, dense = layout.lanes, along[0].input == 1, along[1].stride == along[2].stride == 1 and not average
    planes, rows, columns = along[0].stride, 2, 2
    if not layout.last:
        columns = max(2, lanes)
        planes, rows = (2, 2) if dense and not flat else (planes, 4 if dense else 2)
    elif local and dense and flat:
        lanes, rows, columns = min(4, lanes), 4, 4
    elif not local and not average:
        # as many channels as one access has indices of, or threads would not read side by side
        lanes = min(2, lanes)
        rows, columns = (4, 2) if dense else (4, 4) if lanes < layout.lanes and flat else (2, 2)
    return lanes, (1 if flat else planes, 1 if along[1].input == 1 else rows, columns)


def _forward(config: MaxPoolConfig, along: Sequence[Windows], tensors: Mapping[str, Tensor]) -> ForwardConfig | None:
    """The config of a pool of small windows; None of others."""
    if config.dilated or max(each.kernel for each in along) > 1 + MOST_REACH or along[2].stride > 2:
        return None
    outputs = 1 if config.last else 4
    group = outputs * along[2].stride
    aligned = all(
        each.alignment >= min(16, (group if name == "X" else outputs) * each.dtype.itemsize)
        for name, each in tensors.items()
    )
    group = group if aligned and not config.last and along[2].input % group == 0 else 0
    lanes = config.lanes if config.last else outputs if aligned and along[2].output % outputs == 0 else 1
    return ForwardConfig(
        config.data,
        config.last,
        lanes,
        config.local,
        tuple((each.kernel, each.stride, each.begin) for each in along),
        outputs,
        group,
        along[0] == Windows(1, 1, 1),
        config.values,
        config.indices,
        config.native_bfloat16,
    )
