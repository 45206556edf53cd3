"""The layer norms on a GPU: from a call to launches of the kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.launch import Launch, kernel_of_config, named
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat, row_stride, size_of
from gradkern.ops.layer_norm.cuda.forward.config import ARGUMENTS, NAMES, NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.tiling import choose
from gradkern.ops.layer_norm.cuda.row_plan import NormPlan, layout_of, may_align_vectors, plan_name

__all__ = ["plan"]

_MATRICES = ("X", "skip", "Y", "sum")
_LEAST_ALIGNED = 600  # columns: at 470 single elements were faster by 16 %, at 621 aligned vectors by 18 %


def plan(call: Call) -> NormPlan | EmptyPlan:
    """The plan of one of the layer norms on `call.device`."""
    device = device_of(call)
    tensors = {NAMES[name]: each for name, each in {**call.inputs, **call.outputs}.items()}
    rows, columns = size_of(call.axes["rows"]), size_of(call.axes["columns"])
    for name, tensor in tensors.items():
        if name not in _MATRICES:
            require_flat(name, tensor)
    row_axes = len(call.axes["rows"])
    strides = {name: row_stride(name, tensors[name], row_axes) for name in _MATRICES if name in tensors}
    if rows == 0 or columns == 0 or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))

    config = _config(call, rows, columns, strides, device)
    matrices = [tensors[name] for name in strides]
    narrow = config.width * config.data_itemsize < 8  # wider vectors are faster than aligned vectors with masks
    aligned_config = None
    if narrow and may_align_vectors(config, matrices, device, rows, columns, _LEAST_ALIGNED):
        aligned_config = replace(
            config, aligned_vectors=True, width=16 // config.data_itemsize, scale_width=1, aligned=True
        )
    chosen = partial(
        choose,
        config,
        columns,
        rows,
        device.processors,
        device.shared_bytes,
        aligned_config,
        max_cluster_size=device.max_cluster_size,
    )
    try:
        return _plan(call, chosen(), device, rows, columns, strides)
    except Refusal:  # the device may not support clusters of this many blocks
        return _plan(call, chosen(most_blocks_per_row=1), device, rows, columns, strides)


def _plan(
    call: Call, config: NormForwardConfig, device: Device, rows: int, columns: int, strides: dict[str, int]
) -> NormPlan:
    together = config.blocks_per_row * config.period(columns)
    numbers = config.numbers(columns, call.attributes["epsilon"])
    numbers |= {"rows": rows, **{f"{name}_stride": stride for name, stride in strides.items()}}
    two = config.phase == "apply"
    phases = [replace(config, phase="row_sums"), config] if two else [config]
    given = [*(NAMES[name] for name in (*call.inputs, *call.outputs)), *(["row_sums"] if two else [])]
    arguments = named(ARGUMENTS, numbers, given)
    launches = tuple(_launch(phase, device, arguments, rows, together) for phase in phases)
    sums = rows * config.blocks_per_row * 2 * config.itemsize if two else 0
    return NormPlan(plan_name("layer_norm_forward", config), sums, launches, device)


def _launch(
    config: NormForwardConfig, device: Device, arguments: tuple[list[int], list[int]], rows: int, together: int
) -> Launch:
    """together: the number of blocks is a multiple of this."""
    cluster = config.blocks_per_row if config.cluster else 1
    builder = "gradkern.ops.layer_norm.cuda.forward.kernel:build"
    kernel = kernel_of_config(device, builder, config, arguments=len(ARGUMENTS), cluster=cluster)
    resident = kernel.resident_blocks(config.threads, cluster) // together * together
    if cluster == 1:
        resident = max(resident, config.blocks_per_row)  # independent blocks need not be resident together
    if not resident:
        raise Refusal(
            f"no block of {config.threads} threads and {config.shared_bytes} bytes of shared memory fits the device"
        )
    wanted = round_up(-(-rows // (config.groups_per_block * config.group_rows)) * config.blocks_per_row, together)
    grid = wanted if config.non_persistent else min(resident, wanted)
    return Launch(kernel, grid, config.threads, *arguments, cluster)


def _config(call: Call, rows: int, columns: int, strides: dict[str, int], device: Device) -> NormForwardConfig:
    """All but the threads: vectors as wide as alignment allows."""
    tensors = {NAMES[name]: each for name, each in {**call.inputs, **call.outputs}.items()}
    X, Y, scale = tensors["X"], tensors.get("Y"), tensors["scale"]
    read, written = (
        [(tensors[name], strides[name]) for name in names if name in strides] for names in (("X", "skip"), ("Y", "sum"))
    )
    parameters = [tensors[name] for name in ("scale", "bias", "shift") if name in tensors]
    statistic = tensors.get("mean") or tensors.get("inv_std")
    return NormForwardConfig(
        operator=call.operator,
        data=X.dtype.name,
        upstream=tensors.get("skip", X).dtype.name,
        result=(Y or X).dtype.name,
        parameter=scale.dtype.name,
        statistic=statistic.dtype.name if statistic else "float64" if X.dtype.itemsize == 8 else "float32",
        outputs=frozenset(NAMES[name] for name in call.outputs),
        biased="bias" in tensors and Y is not None,
        shifted="shift" in tensors,
        **layout_of(device, read, written, parameters, rows, columns),
    )
