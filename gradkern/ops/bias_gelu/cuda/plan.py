"""GELU and its gradients on a GPU: from a call to a launch of the kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, kernel_of_form
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat, row_stride, size_of
from gradkern.cuda.scratch import scratch
from gradkern.ops.bias_gelu.cuda.form import ARGUMENTS, LINE, BiasGeluForm, choose, fold_of_sums

__all__ = ["plan"]

_NAMES = {"A": "X", "C": "dX"}  # of GELU's own, in the gradients' words

LINES = 2 * LINE  # bytes: to where rows that are not whole lines are folded
LEAST_ROWS = 64  # of the kernel: with fewer, many rows of its tiles lie beyond the last


@dataclass(frozen=True, slots=True)
class GeluPlan:
    """One launch."""

    kernel: str
    scratch: int
    launch: Launch
    device: Device

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self.launch,)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        if self.scratch:
            self.launch((*inputs, *outputs, *scratch(self.device, stream, self.scratch)), stream)
        else:
            self.launch((*inputs, *outputs), stream)


def plan(call: Call) -> GeluPlan | EmptyPlan:
    """The plan of one of the two GELUs, or of a gradient, on `call.device`."""
    device = device_of(call)
    tensors = _tensors(call)
    rows, columns = size_of(call.axes["rows"]), size_of(call.axes["columns"])
    for name in tensors.keys() & {"B", "dB"}:
        require_flat(name, tensors[name])
    row_axes = len(call.axes["rows"])
    strides = {name: row_stride(name, tensors[name], row_axes) for name in ("dY", "X", "dX") if name in tensors}
    if rows == 0 or columns == 0 or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))

    form, fold = _form(call, rows, columns, strides, device)
    kernel_rows = -(-rows // fold)
    form = choose(form, columns * fold, kernel_rows, device.processors)
    numbers = {"rows": rows // fold, "tail": rows % fold * columns, "repeat": columns}
    numbers |= form.sizes(columns * fold) | {f"{name}_stride": fold * stride for name, stride in strides.items()}
    arguments = [numbers.get(name, 0) for name in ARGUMENTS]
    arguments_of_call = [*tensors, *(("counter", "partial") if form.persistent else ())]
    builder = "gradkern.ops.bias_gelu.cuda.kernel:build"
    kernel = kernel_of_form(device, builder, form, arguments=len(ARGUMENTS))
    chunks = form.chunks(kernel_rows)
    grid = chunks * numbers["slices"]
    partial = chunks * form.column_sums.partial_bytes(columns * fold) if form.persistent else 0
    if form.persistent:
        grid = min(grid, kernel.resident_blocks(form.threads))
        if not grid:
            raise Refusal(f"no block of {form.threads} threads fits the device")
    changing = [ARGUMENTS.index(name) for name in arguments_of_call]
    launch = Launch(kernel, grid, form.threads, arguments, changing, cooperative=form.persistent)
    return GeluPlan(_name(form, fold, numbers["slices"]), partial, launch, device)


def _tensors(call: Call) -> dict[str, Tensor]:
    """Inputs, then outputs, by the kernel's names."""
    return {_NAMES.get(name, name): each for name, each in {**call.inputs, **call.outputs}.items()}


def _name(form: BiasGeluForm, fold: int, slices: int) -> str:
    """A name that tells the kernel's shape: slices x lanes x width, warp_groups x rows of a thread."""
    kind = ("fast_gelu" if form.fast else "gelu") + ("_forward" if form.forward else "")
    what = "tiles" if form.persistent else "single_block" if form.single_block else "stream"
    folded = f"_fold{fold}" if fold > 1 else ""
    return f"{kind}_{what}_{slices}x{form.lanes}x{form.width}_rows{form.warp_groups}x{form.unroll}{folded}"


def _fold(rows: int, columns: int, itemsize: int, width: int, dX_alone: bool) -> int:
    """Rows of the array in one of the kernel's: so many that these are whole vectors, or whole lines of L2.

    For dB whole vectors do: of lines the folded rows would be few and wide, which makes many partial sums. GELU itself,
    which reads half as much, was 5 % slower by lines.
    """
    vectors, lines = (each // gcd(columns, each) for each in (width, LINES // itemsize))
    unaligned = columns * itemsize % LINE != 0
    return lines if unaligned and dX_alone and width * itemsize == 16 and rows >= LEAST_ROWS * lines else vectors


def _form(call: Call, rows: int, columns: int, strides: dict[str, int], device: Device) -> tuple[BiasGeluForm, int]:
    """All but the threads, and how many rows are folded: vectors as wide as alignment allows."""
    tensors = _tensors(call)
    X, B = tensors["X"], tensors["B"]
    itemsize = X.dtype.itemsize
    packed = all(stride == columns * itemsize for stride in strides.values())
    width = 16 // itemsize
    while width > 1 and any(tensors[name].alignment % (width * itemsize) for name in strides):
        width //= 2
    sums = "dB" in call.outputs
    fold = _fold(rows, columns, itemsize, width, dX_alone="dY" in tensors and not sums)
    foldable = packed and rows >= fold and columns * fold < 1 << 31
    if not foldable:
        fold = 1
        while columns % width or any(rows > 1 and stride % (width * itemsize) for stride in strides.values()):
            width //= 2
    bias_width = width if columns % width == 0 else 1
    while bias_width > 1 and B.alignment % min(16, bias_width * B.dtype.itemsize):
        bias_width //= 2
    form = BiasGeluForm(
        operator=call.operator,
        data=X.dtype.name,
        parameter=B.dtype.name,
        outputs=tuple(_NAMES.get(name, name) for name in call.outputs),
        width=width,
        bias_width=bias_width,
        native_bfloat16=device.capability >= (8, 0),
    )
    if sums and foldable:
        fold = fold_of_sums(form, rows, columns, fold)
    long_rows = max(rows, 16 * fold * columns, *(fold * stride for stride in strides.values())) > 1 << 30
    return replace(form, folded=fold > 1, fold=fold if sums else 1, long_rows=long_rows), fold
