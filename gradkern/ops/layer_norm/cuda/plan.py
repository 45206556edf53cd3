"""The layer-norm gradients on a GPU: from a call to launches of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.launch import Launch, kernel_of_config, named
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat, row_stride, size_of
from gradkern.ops.layer_norm.cuda.column_blocks_tiling import with_column_blocks
from gradkern.ops.layer_norm.cuda.config import ARGUMENTS, LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_plan import NormPlan, layout_of, may_align_vectors, plan_name
from gradkern.ops.layer_norm.cuda.tiling import choose

__all__ = ["plan"]

_NAMES = {  # contract name -> the kernel's
    "Y_grad": "Y_grad",
    "X": "X",
    "Y": "X",
    "scale": "scale",
    "bias": "bias_or_X_grad_sum",
    "mean": "mean",
    "inv_std_dev": "inv_std",
    "inv_std_var": "inv_std",
    "residual_grad": "residual",
    "X_grad": "X_grad",
    "scale_grad": "scale_grad",
    "bias_grad": "bias_grad",
    "X_grad_sum": "bias_or_X_grad_sum",
    "branch_grad": "branch_grad",
}
_MATRICES = ("X", "Y", "Y_grad", "residual_grad", "X_grad", "branch_grad")
_LEAST_ALIGNED = 385  # columns: in narrower rows a warp has too few vectors


def plan(call: Call) -> NormPlan | EmptyPlan:
    """The plan of one of the three layer-norm gradients on `call.device`."""
    device = device_of(call)
    tensors = {**call.inputs, **call.outputs}
    rows, columns = size_of(call.axes["rows"]), size_of(call.axes["columns"])
    for name, tensor in tensors.items():
        if name not in _MATRICES:
            require_flat(name, tensor)
    row_axes = len(call.axes["rows"])
    matrices = [name for name in _MATRICES if name in tensors]
    strides = {name: row_stride(name, tensors[name], row_axes) for name in matrices}
    if rows == 0 or columns == 0 or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))

    config = _types(call, rows, columns, strides, device)
    for better in _better(call, config, device, rows, columns):
        with suppress(Refusal):  # the device has too few multiprocessors
            return _plan(call, better, device, rows, columns, strides)
    config = choose(
        config, columns, rows, device.processors, device.shared_bytes, max_cluster_size=device.max_cluster_size
    )
    return _plan(call, config, device, rows, columns, strides)


def _better(call: Call, config: LayerNormConfig, device: Device, rows: int, columns: int) -> Iterator[LayerNormConfig]:
    """Faster configs that some calls or devices cannot use, best first."""
    apart = _with_column_blocks(call, config, device, rows, columns)
    if apart:
        yield apart
    aligned_config = _with_aligned_vectors(call, config, device, rows, columns)
    if aligned_config:
        yield choose(
            config, columns, rows, device.processors, device.shared_bytes, aligned_config, device.max_cluster_size
        )


def _with_column_blocks(
    call: Call, config: LayerNormConfig, device: Device, rows: int, columns: int
) -> LayerNormConfig | None:
    """The config with separate column-reduction blocks for scale_grad and bias_grad, where it is faster. They read X
    and Y_grad while other blocks write X_grad, so X_grad must not overlap these. X_grad_sum needs blocks with rows.
    """
    if call.in_place or not (config.makes_X_grad and config.sums) or "X_grad_sum" in config.outputs:
        return None
    return with_column_blocks(config, columns, rows, device.processors)


def _with_aligned_vectors(
    call: Call, config: LayerNormConfig, device: Device, rows: int, columns: int
) -> list[LayerNormConfig]:
    """Configs with aligned vectors (see RowConfig), if the arrays allow them and vectors have one element: rows of an
    even number of columns were faster in vectors of two. Vectors of half the size have half as many shifts.
    """
    matrices = [tensor for name, tensor in {**call.inputs, **call.outputs}.items() if name in _MATRICES]
    if config.width > 1 or not may_align_vectors(config, matrices, device, rows, columns, _LEAST_ALIGNED):
        return []
    whole = 16 // config.data_itemsize
    aligned_config = replace(config, aligned_vectors=True, scale_width=1)
    return [replace(aligned_config, width=width, aligned=width == whole) for width in (whole, whole // 2)]


def _plan(
    call: Call, config: LayerNormConfig, device: Device, rows: int, columns: int, strides: dict[str, int]
) -> NormPlan:
    _require_room(config, device, columns)
    data = "Y" if config.invertible else "X"
    numbers = config.sizes(columns)
    numbers |= {"rows": rows, "Y_grad_stride": strides["Y_grad"], "X_stride": strides[data]}
    numbers |= {"X_grad_stride": strides.get("X_grad", 0), "residual_stride": strides.get("residual_grad", 0)}
    numbers |= {"branch_grad_stride": strides.get("branch_grad", 0)}
    in_two = config.phase == "apply"
    phases = [replace(config, phase="row_sums"), config] if in_two and config.makes_X_grad else [config]
    memory = ["partial", "row_sums", "counter"] if in_two or config.waits_for_grid else []
    arguments = named(ARGUMENTS, numbers, [*(_NAMES[name] for name in (*call.inputs, *call.outputs)), *memory])
    launches = tuple(_launch(phase, device, arguments, rows, columns) for phase in phases)
    writers = max(launch.grid // config.blocks_per_row for launch in launches) if config.waits_for_grid else 0
    partial = writers * config.column_sums.partial_bytes(columns)
    sums = rows * config.blocks_per_row * 2 * config.itemsize if in_two else 0
    name = plan_name("layer_norm", config) + ("_column_blocks" if config.separate_reduction else "")
    return NormPlan(name, partial + sums, launches, device, partial)


def _require_room(config: LayerNormConfig, device: Device, columns: int) -> None:
    """The two launches of very wide rows of the invertible norm do not fit compute capability 7.5."""
    needed = config.shared_bytes
    if needed > device.shared_bytes:
        raise Refusal(
            f"rows of {columns} columns need {needed} bytes of shared memory; the device has {device.shared_bytes}"
        )


def _launch(
    config: LayerNormConfig, device: Device, arguments: tuple[list[int], list[int]], rows: int, columns: int
) -> Launch:
    cluster = config.launch_cluster
    together = config.blocks_per_row * config.period(columns)  # the number of blocks is a multiple
    builder = "gradkern.ops.layer_norm.cuda.kernel:build"
    kernel = kernel_of_config(device, builder, config, arguments=len(ARGUMENTS), cluster=cluster)
    resident = kernel.resident_blocks(config.threads, cluster) // together * together
    most = device.processors * config.blocks_per_processor // together * together
    resident = min(resident, max(most, config.blocks_per_row))  # more blocks would write more partial sums
    if config.single_block:
        resident = config.blocks_per_row
    elif not config.waits_for_grid:
        wanted = round_up(-(-rows // (config.groups_per_block * config.group_rows)) * config.blocks_per_row, together)
        if config.separate_reduction:  # no block waits for another: they may run in any order
            wanted = round_up(round_up(config.column_blocks(columns), config.blocks_per_row) + wanted, cluster)
            resident = wanted if resident else 0
        resident = min(max(resident, config.blocks_per_row if cluster == 1 else 0), wanted)
    if not resident:
        raise Refusal(
            f"no block of {config.threads} threads and {config.shared_bytes} bytes of shared memory fits the device"
        )
    return Launch(kernel, resident, config.threads, *arguments, cluster, cooperative=config.waits_for_grid)


def _types(call: Call, rows: int, columns: int, strides: dict[str, int], device: Device) -> LayerNormConfig:
    data = call.inputs["Y" if call.operator.startswith("Invertible") else "X"]
    upstream, result, branch = call.inputs["Y_grad"], call.outputs.get("X_grad"), call.outputs.get("branch_grad")
    statistic = call.inputs.get("inv_std_dev") or call.inputs["inv_std_var"]
    residual = call.inputs.get("residual_grad")
    read, written = (
        [(each, strides[name]) for name, each in arrays.items() if name in strides]
        for arrays in (call.inputs, call.outputs)
    )
    parameters = [each for name, each in call.inputs.items() if name in ("scale", "bias")]
    return LayerNormConfig(
        operator=call.operator,
        upstream=upstream.dtype.name,
        data=data.dtype.name,
        result=result.dtype.name if result else data.dtype.name,
        parameter=call.inputs["scale"].dtype.name,
        statistic=statistic.dtype.name,
        outputs=frozenset(call.outputs),
        **layout_of(device, read, written, parameters, rows, columns),
        residual=residual is not None and bool({"X_grad", "X_grad_sum", "branch_grad"} & call.outputs.keys()),
        branch=branch.dtype.name if branch else "",
    )
