"""DirectML's batch norm gradients on a GPU: one pass over memory for all outputs; in training a second one in the same
launch.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import lcm, prod

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.channels import persistent_plan, streaming_plan
from gradkern.kernels.channels.persistent_plan import DATA, Named
from gradkern.kernels.channels.streaming_tiling import Dimensions
from gradkern.kernels.channels.tiles_config import LINE, VECTOR, tiles_of_sums, with_fold
from gradkern.kernels.channels.tiles_plan import has_long_rows, parameters_at_once, tiles_plan
from gradkern.ops.dml_batch_norm.cuda.config import DmlBatchNormConfig

NAMES = {  # contract name -> that of the kernels of channels
    "Input": "X",
    "InputGradient": "D",
    "Mean": "mean",
    "Variance": "deviation",
    "Scale": "scale",
    "OutputGradient": "dX",
    "OutputScaleGradient": "scale_sum",
    "OutputBiasGradient": "bias_sum",
}
NAMES_OF_TILES = {  # contract name -> that of the tiles kernel
    "Input": "X",
    "InputGradient": "D",
    "Mean": "first_parameter",
    "Scale": "second_parameter",
    "Variance": "third_parameter",
    "OutputGradient": "dX",
    "OutputScaleGradient": "first_sum",
    "OutputBiasGradient": "second_sum",
}
# Threads of a block; and for rows of at most a line, where parameters are loaded one by one and more threads hide their
# latency; rows of a thread at a time. The best values on an H200 with a cold L2.
_THREADS, _THREADS_SHORT, _ROWS = 256, 320, 4


def plan(call: Call) -> LaunchPlan | LaunchesPlan | EmptyPlan:
    """In training the streaming kernel runs. Of constant statistics arrays in C order use the persistent kernel, where
    it should be faster; arrays with channel axes last in memory the tiles kernel; others the streaming kernel.
    """
    sizes, statistics = call.inputs["Input"].shape, call.inputs["Mean"].shape
    epsilon = float(call.attributes["Epsilon"])
    is_channel_axis = [kept == size for size, kept in zip(sizes, statistics, strict=True)]
    if call.operator == "DmlBatchNormalizationTrainingGrad":
        elements = prod(size for size, kept in zip(sizes, is_channel_axis, strict=True) if not kept)
        return streaming_plan.plan(call, NAMES, is_channel_axis, epsilon, elements)
    per_channel = len(sizes) > 1 and statistics == (1, sizes[1], *(1 for _ in sizes[2:]))
    if call.outputs and call.inputs["Input"].size:
        device = device_of(call)
        tensors = {NAMES[name]: (name, tensor) for name, tensor in {**call.inputs, **call.outputs}.items()}
        dims = streaming_plan.dimensions_of(tensors, is_channel_axis)
        if per_channel:
            with suppress(Refusal):
                return persistent_plan.single_pass_plan(tensors, device, epsilon)
        if _in_whole_vectors(tensors, dims):
            with suppress(Refusal):
                return _tiles_plan(call.operator, tensors, dims, device, epsilon)
    return streaming_plan.plan(call, NAMES, is_channel_axis, epsilon)


def _in_whole_vectors(tensors: Named, dims: Dimensions) -> bool:
    """The requirements of tiles: D and X are read and dX is written, these consist of whole vectors, and
    there are no outer dimensions.
    """
    if dims.outer_sizes or not {"dX", "scale_sum"} <= tensors.keys():
        return False
    return all(tensors[name][1].alignment % VECTOR == 0 for name in DATA)


def _outputs(tensors: Named) -> tuple[str, ...]:
    return tuple(name for name in ("dX", "scale_sum", "bias_sum") if name in tensors)


def _tiles_plan(
    operator: str, tensors: Named, dims: Dimensions, device: Device, epsilon: float
) -> LaunchPlan | LaunchesPlan:
    """Raises Refusal, with the reason, for arrays that need the streaming kernel."""
    X = tensors["X"][1]
    rows, columns, item = dims.batch, dims.inner_channels, X.dtype.itemsize
    width = VECTOR // item
    if dims.spatial > 1 or rows < 2 or lcm(columns, width) >= 1 << 31:
        raise Refusal("its rows are not of one element of each channel, or too few")
    config = DmlBatchNormConfig(
        operator=operator,
        data=X.dtype.name,
        parameter=X.dtype.name,
        outputs=_outputs(tensors),
        width=width,
        parameters_at_once=parameters_at_once(
            width, columns, [tensors[name][1] for name in ("mean", "scale", "deviation")]
        ),
        native_bfloat16=device.capability >= (8, 0),
        epsilon=epsilon,
    )
    config, fold = with_fold(config, columns, rows, device.processors)
    stride = columns * item
    config = replace(config, folded=fold > 1, fold=fold, long_rows=has_long_rows(rows, fold * columns, [fold * stride]))
    threads = _THREADS_SHORT if stride <= LINE else _THREADS
    config = tiles_of_sums(config, columns * fold, -(-rows // fold), device.processors, threads, _ROWS)
    strides: dict[str, int] = dict.fromkeys(DATA, stride)
    given = [NAMES_OF_TILES[name] for name, _ in tensors.values()]
    builder = "gradkern.ops.dml_batch_norm.cuda.kernel:build"
    return tiles_plan("columns", builder, config, (rows, columns), fold, strides, given, device)
