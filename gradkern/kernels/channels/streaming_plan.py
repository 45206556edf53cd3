"""From a call of a batch norm to a launch of the streaming kernel (streaming_kernel.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of_config, named
from gradkern.cuda.launches_plan import LaunchesPlan, plan_of, scratch_plan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.channels.streaming_config import StreamingConfig, second_pass, sharing_ring, with_largest_ring
from gradkern.kernels.channels.streaming_tiling import ARGUMENTS, Dimensions, Tiling, choose_tiling
from gradkern.strides import is_dense, memory_order, merged_axes

_DATA = ("D", "D2", "X", "Y", "Z", "dX", "dZ")
_PER_CHANNEL = (
    "scale",
    "scale_sum",
    "bias_sum",
    "mean",
)  # all in one order; the first determines the type of the sums' results
_TOTALS = frozenset({"scale_total", "bias_total"})
_PARAMETERS = ("scale", "bias", "mean", "deviation", "scale_total", "bias_total")


def plan(
    call: Call,
    names: Mapping[str, str],
    is_channel_axis: Sequence[bool],
    epsilon: float | None,
    elements: int | None = None,
    settings: Mapping[str, int] | None = None,
    message: bool = False,
    activation: str = "none",
) -> LaunchPlan | LaunchesPlan | EmptyPlan:
    """The plan of a batch norm, of its gradient, or of sums of D without X. Sums may also be totals.

    names            the kernel's argument for every tensor of the contract
    is_channel_axis  for each axis of X, whether it is a channel axis; the others are reduced
    epsilon          added to `deviation`, the variance; None: `deviation` is the inverse standard deviation
    elements         the number of elements of a channel's statistics; None: these are constants. If the call has
                     `counts`, the number of counts
    settings         for a batch norm's forward pass (it has no D): epsilon, momentum and correction, as bits
    message          the statistics are written as one message: mean, variance, m
    activation       as from with_alpha

    Every array must be dense in the memory order of X, and parameters in that of its channel axes.
    """
    device = device_of(call)
    tensors = {names[name]: (name, tensor) for name, tensor in {**call.inputs, **call.outputs}.items()}
    X = tensors["X" if "X" in tensors else "D"][1]
    dims = dimensions_of(tensors, is_channel_axis)
    if 0 in X.shape or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))

    described = {name: tensor for name, (_, tensor) in tensors.items()}
    outputs = frozenset(names[name] for name in call.outputs)
    config = _config(described, outputs, dims, epsilon, activation, device)
    config, second = _passes(config, "scale_total" in tensors, "counts" in tensors, settings is not None, elements)
    config = replace(config, message=message)
    if second is not None:
        config = sharing_ring(config)
    config, tiling = choose_tiling(config, dims, device.processors, device.shared_bytes)
    given = [names[name] for name in (*call.inputs, *call.outputs)]
    adding = config.sums > 0 and not config.direct
    partial = tiling.partial_rows * config.column_sums.partial_bytes(dims.channels) if adding else 0
    kernel, numbers = name_of(config, tiling), {"elements": elements or 0}
    if settings is not None:
        numbers |= {**settings, **_samples(dims)}
    if second is None:
        given += ["partial", "counter"] if partial else []
        return plan_of(kernel, partial, _launch(config, tiling, device, given, adding, numbers), device)

    totals = ["scale_total", "bias_total", *(["shift"] if config.statistics else [])]
    given += ["partial", *totals, "counter"]
    first_total, total = round_up(partial, 128), round_up(dims.channels * config.itemsize, 128)
    offsets = (0, *(first_total + n * total for n in range(len(totals))))
    memory = first_total + len(totals) * total
    config = with_largest_ring(config, device.shared_bytes)
    then = replace(second_pass(config), outputs=second.outputs)
    launch = _launch(config, tiling, device, given, adding, numbers, then)
    return scratch_plan(kernel, memory, launch, device, offsets)


def dimensions_of(tensors: Mapping[str, tuple[str, Tensor]], is_channel_axis: Sequence[bool]) -> Dimensions:
    """The merged dimensions of X, or of D if there is no X, in memory order. tensors: the contract's name and the
    tensor, by the kernel's name. Raises Refusal, with the reason, if they are not dense in one order.
    """
    data, X = tensors["X" if "X" in tensors else "D"]
    order = memory_order(X)
    for name, tensor in tensors.values():
        if not is_dense(tensor, order if len(tensor.shape) == len(order) else None):
            raise Refusal(f"{name}: it does not lie end to end in the memory order of {data}")
    channel_axes = [axis for axis in order if is_channel_axis[axis] and X.shape[axis] != 1]
    per_channel = next(tensors[name][1] for name in _PER_CHANNEL if name in tensors)
    if len(per_channel.shape) != len(order) and channel_axes != sorted(channel_axes):
        raise Refusal(f"{data}: its channels lie in another order than the parameters")
    return Dimensions.of(merged_axes([X.shape[axis] for axis in order], [is_channel_axis[axis] for axis in order]))


def _passes(
    config: StreamingConfig, totals: bool, counted: bool, forward: bool, elements: int | None
) -> tuple[StreamingConfig, StreamingConfig | None]:
    """The pass of a config with all outputs of a call, or the first and the second pass."""
    if forward:
        first = replace(config, outputs=frozenset[str](), statistics=True, totals=True)
        return first, replace(second_pass(first), outputs=config.outputs & {"Y"})
    if config.outputs >= _TOTALS:
        return replace(config, outputs=config.outputs - _TOTALS, totals=True), None
    if "Y" in config.outputs:
        return replace(config, normalises=True, given=True), None
    if "dX" not in config.outputs or elements is None:
        return config, None
    if totals:
        return replace(config, outputs=frozenset({"dX"}), centred=True, counted=counted), None
    first = replace(config, outputs=config.outputs - {"dX"}, totals=True)
    return first, second_pass(first)


def _samples(dims: Dimensions) -> dict[str, int]:
    """The places of a channel's three samples (see streaming_channels), far from each other and from edges."""
    places = [
        dims.batch * part // 6 * dims.inner_channels * dims.spatial + dims.spatial * part // 6 for part in (1, 3, 5)
    ]
    names = ("first_sample", "second_sample", "third_sample")
    return {"apart": dims.spatial, **dict(zip(names, places, strict=True))}


def _config(
    tensors: Mapping[str, Tensor],
    outputs: frozenset[str],
    dims: Dimensions,
    epsilon: float | None,
    activation: str,
    device: Device,
) -> StreamingConfig:
    data = [tensors[name] for name in _DATA if name in tensors]
    itemsize = data[0].dtype.itemsize
    width = 16 // itemsize
    while any(each.alignment % (width * itemsize) for each in data) or (dims.outer_sizes and dims.count % width):
        width //= 2
    parameters = [tensors[name] for name in _PARAMETERS if name in tensors]
    plain = device.capability < (8, 0) or width * itemsize < 4
    return StreamingConfig(
        data=data[0].dtype.name,
        parameter=next(tensors[name] for name in _PER_CHANNEL if name in tensors).dtype.name,
        statistic=_statistic(tensors),
        outputs=outputs,
        activation=activation,
        operands=frozenset({"D2", "Y", "Z"} & tensors.keys()) - outputs,
        epsilon=epsilon,
        width=width,
        source="plain" if plain else "async",
        columns=all(each.alignment % min(16, width * each.dtype.itemsize) == 0 for each in parameters),
        native_bfloat16=device.capability >= (8, 0),
    )


def _statistic(tensors: Mapping[str, Tensor]) -> str:
    """The type of the statistics that are read."""
    data = next(tensors[name] for name in ("X", "D") if name in tensors).dtype.name
    if "input_mean" in tensors or "input_var" in tensors:
        return next(tensors[name] for name in ("input_mean", "input_var") if name in tensors).dtype.name
    if "D" not in tensors:
        return "float64" if data == "float64" else "float32"
    return tensors["deviation"].dtype.name if "deviation" in tensors else data


def _launch(
    config: StreamingConfig,
    tiling: Tiling,
    device: Device,
    given: list[str],
    adding: bool,
    settings: Mapping[str, int],
    then: StreamingConfig | None = None,
) -> Launch:
    builder = "gradkern.kernels.channels.streaming_kernel:build"
    kernel = kernel_of_config(device, builder, config, then, arguments=len(ARGUMENTS))
    resident = min(kernel.resident_blocks(config.threads), device.processors * config.blocks_per_processor)
    if not resident:
        raise Refusal(
            f"no block of {config.threads} threads and {config.shared_bytes} bytes of shared memory fits the device"
        )
    last = -(-config.sums * tiling.channels // (4 * config.chunk)) if adding else 0  # shares of the last step
    grid = min(resident, max(tiling.items, last))
    numbers = {**tiling.numbers, **settings}
    return Launch(kernel, grid, config.threads, *named(ARGUMENTS, numbers, given), cooperative=adding)


def name_of(config: StreamingConfig, tiling: Tiling) -> str:
    """A name with the shape: how elements reach a thread, threads x vectors x width, tiles and groups."""
    kind = "elements" if config.direct else "columns" if config.split else "planes"
    blocks = f"{config.threads}x{config.vectors}x{config.width}"
    return f"{kind}_{config.source}_{blocks}_tiles{tiling.tiles}_groups{tiling.groups}"
