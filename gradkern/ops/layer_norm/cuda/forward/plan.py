"""The layer norms on a GPU: from a call to launches of the kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device, in_turn
from gradkern.cuda.launch import Launch, kernel_of_form
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat, row_stride, size_of
from gradkern.cuda.scratch import scratch
from gradkern.ops.layer_norm.cuda.forward.form import ARGUMENTS, NormForm
from gradkern.ops.layer_norm.cuda.forward.tiling import choose

__all__ = ["plan"]

_NAMES = {  # contract name -> the kernel's
    "X": "X",
    "input": "X",
    "skip": "skip",
    "gamma": "scale",
    "beta": "bias",
    "bias": "shift",
    "Scale": "scale",
    "scale": "scale",
    "B": "bias",
    "Y": "Y",
    "output": "Y",
    "Mean": "mean",
    "mean": "mean",
    "InvStdDev": "inv_std",
    "inv_std_var": "inv_std",
    "input_skip_bias_sum": "sum",
}
_MATRICES = ("X", "skip", "Y", "sum")
_INDEX = {name: index for index, name in enumerate(ARGUMENTS)}


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """One launch, or two where a row is too wide for a cluster, with scratch memory between them."""

    kernel: str
    scratch: int
    launches: tuple[Launch, ...]
    device: Device

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        if not self.scratch:
            self.launches[0]((*inputs, *outputs), stream)
            return
        _, buffer = scratch(self.device, stream, self.scratch)
        with in_turn:
            for launch in self.launches:
                launch((*inputs, *outputs, buffer), stream)


def plan(call: Call) -> ForwardPlan | EmptyPlan:
    """The plan of one of the layer norms on `call.device`."""
    device = device_of(call)
    tensors = {_NAMES[name]: each for name, each in {**call.inputs, **call.outputs}.items()}
    rows, columns = size_of(call.axes["rows"]), size_of(call.axes["columns"])
    for name, tensor in tensors.items():
        if name not in _MATRICES:
            require_flat(name, tensor)
    row_axes = len(call.axes["rows"])
    strides = {name: row_stride(name, tensors[name], row_axes) for name in _MATRICES if name in tensors}
    if rows == 0 or columns == 0 or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))

    form = choose(_form(call, rows, columns, strides, device), columns, rows, device.processors, device.shared_bytes)
    numbers = form.numbers(columns, call.attributes["epsilon"])
    numbers |= {"rows": rows, **{f"{name}_stride": stride for name, stride in strides.items()}}
    arguments = [numbers.get(name, 0) for name in ARGUMENTS]
    two = form.phase == "apply"
    phases = [replace(form, phase="row_sums"), form] if two else [form]
    changing = [_INDEX[_NAMES[name]] for name in (*call.inputs, *call.outputs)]
    changing += [_INDEX["row_sums"]] if two else []
    launches = tuple(_launch(phase, device, arguments, changing, rows) for phase in phases)
    return ForwardPlan(_name(form), rows * form.slices * 2 * form.itemsize if two else 0, launches, device)


def _launch(form: NormForm, device: Device, arguments: list[int], changing: list[int], rows: int) -> Launch:
    cluster = form.slices if form.cluster else 1
    builder = "gradkern.ops.layer_norm.cuda.forward.kernel:build"
    kernel = kernel_of_form(device, builder, form, arguments=len(ARGUMENTS), cluster=cluster)
    resident = kernel.resident_blocks(form.threads, cluster) // form.slices * form.slices
    if cluster == 1:
        resident = max(resident, form.slices)  # blocks that know nothing of each other may wait for their turn
    if not resident:
        raise Refusal(
            f"no block of {form.threads} threads and {form.shared_bytes} bytes of shared memory fits the device"
        )
    wanted = -(-rows // (form.warp_groups * form.group_rows)) * form.slices
    return Launch(kernel, min(resident, wanted), form.threads, arguments, changing, cluster)


def _name(form: NormForm) -> str:
    """A name that tells the kernel's shape: rows' source, slices x lanes x vectors x width, groups, stages."""
    shape = f"{form.slices}x{form.lanes}x{form.vectors}x{form.width}"
    return f"layer_norm_forward_{form.source}_{form.phase}_{shape}_groups{form.warp_groups}_stages{form.stages}"


def _form(call: Call, rows: int, columns: int, strides: dict[str, int], device: Device) -> NormForm:
    """All but the threads: vectors as wide as alignment allows."""
    tensors = {_NAMES[name]: each for name, each in {**call.inputs, **call.outputs}.items()}
    X, Y, scale = tensors["X"], tensors.get("Y"), tensors["scale"]
    matrices = [(tensors[name], stride) for name, stride in strides.items()]
    width = 16 // max(each.dtype.itemsize for each, _ in matrices)
    while width > 1 and not all(
        columns % width == 0
        and each.alignment % min(16, width * each.dtype.itemsize) == 0
        and (rows == 1 or step % min(16, width * each.dtype.itemsize) == 0)
        for each, step in matrices
    ):
        width //= 2
    scale_width = width
    starts = min(tensors[name].alignment for name in ("scale", "bias", "shift") if name in tensors)
    while scale_width > 1 and starts % min(16, scale_width * scale.dtype.itemsize):
        scale_width //= 2
    if device.capability >= (9, 0):
        source = "bulk"
    else:
        source = "async" if device.capability >= (8, 0) and width * X.dtype.itemsize >= 4 else "plain"
    read = [name for name in ("X", "skip") if name in tensors]
    starts_of_read, strides_of_read = ([tensors[name].alignment for name in read], [strides[name] for name in read])
    statistic = tensors.get("mean") or tensors.get("inv_std")
    return NormForm(
        operator=call.operator,
        data=X.dtype.name,
        result=(Y or X).dtype.name,
        parameter=scale.dtype.name,
        statistic=statistic.dtype.name if statistic else "float64" if X.dtype.itemsize == 8 else "float32",
        outputs=frozenset(_NAMES[name] for name in call.outputs),
        biased="bias" in tensors and Y is not None,
        shifted="shift" in tensors,
        width=width,
        lanes=1,
        vectors=1,
        warp_groups=1,
        scale_width=scale_width,
        source=source,
        aligned=all(each % 16 == 0 for each in (*starts_of_read, *strides_of_read, columns * X.dtype.itemsize)),
        packed=all(each == columns * X.dtype.itemsize for each in strides_of_read),
        long_rows=max(rows, 16 * columns, *strides.values()) > 1 << 30,
        native_bfloat16=device.capability >= (8, 0),
    )
