"""A linear layer with its cross entropy on a GPU: cuBLAS's products around CrossEntropy's kernel in place.

Of each part of the rows: the logits, in lines of memory of their own; their losses and gradients, in their place; dX of
the part; its share of dW and dB, added up in float32. These are rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradkern.call import Call, Refusal, Tensor
from gradkern.cublas.library import bindings, handle, workspace_bytes, wrapped
from gradkern.cublas.product import Gemm, Matrix, Product, gemms
from gradkern.cuda.device import Device, activate, check, driver, in_turn
from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.cuda.dry_run import DryRunDevice
from gradkern.cuda.launch import Launch
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.cuda.scratch import scratch
from gradkern.cuda.torch_memory import LARGE, borrow, give_back
from gradkern.kernels.rows.config import configs
from gradkern.kernels.rows.plan import launch_of
from gradkern.kernels.rows.problem import RowsTypes, problem_of
from gradkern.ops.cross_entropy.cuda.config import EXACT_LABELS
from gradkern.ops.cross_entropy.cuda.plan import LOSSES, OWN, OWN_BYTES, OWN_OFFSETS, Step, Steps, empty_plan
from gradkern.ops.cross_entropy.parts import chunks, padded
from gradkern.strides import c_strides

_X, _W, _LOGITS, _DX, _DW, _ONES, _DB = range(7)  # operands of the products
_OPERANDS = ("X", "padded W", "logits", "dX", "dW sums", "ones", "dB sums")
_multiplying = wrapped("a matrix product")


@dataclass(frozen=True, slots=True)
class _Part:
    begin: int
    rows: Step
    logits: tuple[Gemm, ...]
    gradients: tuple[Gemm, ...]


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """The products of every part between the launches of CrossEntropy's kernels.

    moving  bytes from row to row of what a part has its own rows of
    memory  offsets in the workspace by name, behind cuBLAS's own
    ones    how many, and their type, for sums over rows
    padding bytes of W, and with rows of zeros behind it
    """

    kernel: str
    scratch: int
    device: Device
    names: tuple[str, ...]
    before: tuple[Step, ...]
    parts: tuple[_Part, ...]
    after: tuple[Step, ...]
    moving: dict[str, int]
    memory: dict[str, int]
    ones: tuple[int, str]
    padding: tuple[int, int]

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(launch for launch, _ in (*self.before, *(each.rows for each in self.parts), *self.after))

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        with activate(self.device), in_turn:
            counter, kept = scratch(self.device, stream, 1)
            lent = borrow(self.device, stream, self.scratch) if self.scratch > LARGE else None
            if lent is None:
                counter, kept = scratch(self.device, stream, self.scratch)
            try:
                self._enqueue(dict(zip(self.names, (*inputs, *outputs), strict=True)), lent or kept, counter, stream)
            finally:
                if lent is not None:
                    give_back(lent)

    def _enqueue(self, at: dict[str, int], workspace: int, counter: int, stream: int) -> None:
        at |= {name: workspace + offset for name, offset in self.memory.items()}
        at |= dict(zip(OWN, (*(at["own"] + each for each in OWN_OFFSETS), counter), strict=True))
        at.setdefault("dW sums", at.get("dW", 0))
        at.setdefault("padded W", at["W"])
        if at["padded W"] != at["W"]:
            whole, all_bytes = self.padding
            check(driver.cuMemcpyDtoDAsync(at["padded W"], at["W"], whole, stream), "copying W")
            check(driver.cuMemsetD8Async(at["padded W"] + whole, 0, all_bytes - whole, stream), "padding W")
        own = handle(self.device.index)
        own.use(stream, workspace, workspace_bytes(self.device))
        _fill_with_ones(at.get("ones", 0), *self.ones, stream)
        _launch(self.before, at, stream)
        for part in self.parts:
            here = at | {name: at[name] + part.begin * step for name, step in self.moving.items() if name in at}
            operands = tuple(here.get(name, 0) for name in _OPERANDS)
            with _multiplying:
                for gemm in part.logits:
                    gemm(own, operands)
            _launch((part.rows,), here, stream)
            with _multiplying:
                for gemm in part.gradients:
                    gemm(own, operands)
        _launch(self.after, at, stream)


def _launch(steps: Sequence[Step], at: dict[str, int], stream: int) -> None:
    for launch, names in steps:
        launch([at[name] for name in names], stream)


def _fill_with_ones(address: int, count: int, dtype: str, stream: int) -> None:
    if not count:
        return
    if dtype == "float64":
        check(driver.cuMemsetD8Async(address, 0, 8 * count, stream), "writing ones")
        check(driver.cuMemsetD2D32Async(address + 4, 8, 0x3FF00000, 1, count, stream), "writing ones")
    elif dtype == "float32":
        check(driver.cuMemsetD32Async(address, 0x3F800000, count, stream), "writing ones")
    else:
        bits = 0x3F80 if dtype == "bfloat16" else 0x3C00
        check(driver.cuMemsetD16Async(address, bits, count, stream), "writing ones")


def plan(call: Call) -> LinearPlan | EmptyPlan:
    device = device_of(call)
    X, W = call.inputs["X"], call.inputs["W"]
    (rows, features), classes = X.shape, W.shape[0]
    if not rows or not classes:
        return empty_plan(call, device, "loss")
    if not features:
        raise Refusal("matrix products take no empty arrays")
    if classes >= EXACT_LABELS:
        raise Refusal(f"{classes} classes: its kernels take fewer than {EXACT_LABELS}")
    if X.dtype.name == "bfloat16" and device.capability < (8, 0):
        raise Refusal("cuBLAS has no products of bfloat16 for this device")
    for name, tensor in {**call.inputs, **call.outputs}.items():
        require_flat(name, tensor)
    if not isinstance(device, DryRunDevice):
        bindings()
    return _Linear(call, device).plan()


class _Linear:
    def __init__(self, call: Call, device: Device) -> None:
        self._call, self._device = call, device
        X, W = call.inputs["X"], call.inputs["W"]
        self._type, self._item = X.dtype.name, X.dtype.itemsize
        (self._rows, self._features), self._classes = X.shape, W.shape[0]
        self._line = padded(self._classes, self._item)
        self._pads = self._classes * self._item % 16 > 0  # classes that W does not have, of zeros
        self._columns = self._line if self._pads else self._classes
        self._compute = "float64" if self._type == "float64" else "float32"
        sums = self._columns * self._features * 4 * ("dW" in call.outputs and self._type != self._compute)
        self._chunks = chunks(self._rows, self._line * self._item, call.attributes["logits_bytes"], sums)
        self._of_rows = call.attributes["reduction"] == "none"
        several = len(self._chunks) > 1 and self._type != self._compute
        self._summed = "dW" in call.outputs and (several or self._pads)

    def plan(self) -> LinearPlan:
        call = self._call
        whole_call = self._loss_call(self._rows, c_strides((self._rows, self._classes), self._item))
        whole = Steps(whole_call, self._device)
        losses = "loss" if self._of_rows and "loss" in call.outputs else LOSSES
        parts = tuple(self._parts(losses))
        total = "loss" if "loss" in call.outputs and not self._of_rows else None
        after = [*whole.after(losses, total), *self._roundings()]
        kind = call.inputs["labels"].dtype.itemsize
        moving = {"X": self._features * self._item, "dX": self._features * self._item, "labels": kind}
        moving[losses] = ITEMSIZE[self._compute]
        if self._of_rows:
            moving["dY"] = ITEMSIZE[self._compute]
        memory, size = self._memory()
        longest = max(end - begin for begin, end in self._chunks)
        name = f"products_of_{longest}_rows"
        ones = (longest, self._type) if "dB" in call.outputs else (0, "")
        names = (*call.inputs, *call.outputs)
        padding = (self._classes * self._features * self._item, self._columns * self._features * self._item)
        return LinearPlan(
            name, size, self._device, names, tuple(whole.before()), parts, tuple(after), moving, memory, ones, padding
        )  # fmt: skip

    def _memory(self) -> tuple[dict[str, int], int]:
        longest, call = max(end - begin for begin, end in self._chunks), self._call
        sizes = {"own": OWN_BYTES + 8 * self._rows, "logits": longest * self._line * self._item}
        if self._summed:
            sizes["dW sums"] = self._columns * self._features * ITEMSIZE[self._compute]
        if "dB" in call.outputs:
            sizes |= {"ones": longest * self._item, "dB sums": self._columns * ITEMSIZE[self._compute]}
        if self._pads:
            sizes["padded W"] = self._columns * self._features * self._item
        places, at = dict[str, int](), workspace_bytes(self._device)
        for name, size in sizes.items():
            places[name] = at
            at += round_up(size, 256)
        return places, at

    def _loss_call(self, rows: int, strides: tuple[int, ...]) -> Call:
        """CrossEntropy of so many rows of logits, in place; B is added to them."""
        call = self._call
        logits = Tensor(call.inputs["X"].dtype, (rows, self._classes), strides, 16)
        loss = Tensor(np.dtype(self._compute), (rows,) if self._of_rows else (), (), 16)
        given = {name: tensor for name, tensor in call.inputs.items() if name not in ("X", "W")}
        for name in ("labels", *(["dY"] if self._of_rows and "dY" in given else [])):
            given[name] = given[name]._replace(shape=(rows,))
        outputs = {"loss": loss} if "loss" in call.outputs else {}
        if {"dX", "dW", "dB"} & call.outputs.keys():
            outputs["dX"] = logits
        axes = {"N": rows, "C": self._classes, "spatial": ()}
        return replace(
            call, operator="CrossEntropy", inputs={"X": logits, **given}, outputs=outputs, axes=axes,
            in_place=frozenset({("X", "dX")}),
        )  # fmt: skip

    def _parts(self, losses: str) -> Iterator[_Part]:
        known, H = dict[int, tuple[Step, tuple[Gemm, ...]]](), self._features
        for begin, end in self._chunks:
            rows = end - begin
            if rows not in known:
                loss_call = self._loss_call(rows, (self._line * self._item, self._item))
                _, (launch, names) = Steps(loss_call, self._device).rows(losses)
                names = ["logits" if name in ("X", "dX") else name for name in names]
                operands = Matrix(_X, 0, H, 1), Matrix(_W, 0, 1, H), Matrix(_LOGITS, 0, self._line, 1)
                known[rows] = (launch, names), tuple(self._gemms(rows, H, self._columns, *operands))
            step, logits = known[rows]
            yield _Part(begin, step, logits, tuple(self._gradients(rows, begin > 0)))

    def _gemms(
        self, rows: int, inner: int, columns: int, left: Matrix, right: Matrix, result: Matrix,
        kind: str = "", accumulate: bool = False,
    ) -> Iterator[Gemm]:  # fmt: skip
        kind = kind or self._type
        return gemms(Product(rows, columns, inner, left, right, result, self._type, kind, accumulate=accumulate))

    def _gradients(self, rows: int, later: bool) -> Iterator[Gemm]:
        H, C, line, outputs = self._features, self._columns, self._line, self._call.outputs
        gradient = Matrix(_LOGITS, 0, line, 1)
        if "dX" in outputs:
            yield from self._gemms(rows, C, H, gradient, Matrix(_W, 0, H, 1), Matrix(_DX, 0, H, 1))
        if "dW" in outputs:
            kind = self._compute if self._summed else self._type
            both = Matrix(_X, 0, H, 1), Matrix(_DW, 0, H, 1)
            yield from self._gemms(C, rows, H, gradient.transposed, *both, kind, later)
        if "dB" in outputs:
            both = Matrix(_ONES, 0, 1, 1), Matrix(_DB, 0, 1, 1)
            yield from self._gemms(C, rows, 1, gradient.transposed, *both, self._compute, later)

    def _roundings(self) -> Iterator[Step]:
        """From sums to the outputs."""
        for name, summed in (("dW", self._summed), ("dB", "dB" in self._call.outputs)):
            if not summed:
                continue
            made = self._call.outputs[name]
            shape = made.shape if len(made.shape) > 1 else (1, *made.shape)
            made = Tensor(made.dtype, shape, c_strides(shape, made.dtype.itemsize), made.alignment)
            kind = np.dtype(self._compute)
            sums = Tensor(kind, shape, c_strides(shape, kind.itemsize), 16)
            native = self._device.capability >= (8, 0)
            types = RowsTypes("Rounding", (kind.name,), (made.dtype.name,), reductions=0, native_bfloat16=native)
            problem = problem_of(types, {"sums": sums, name: made}, 1, 2)
            config = next(configs(problem, self._device.capability))
            builder = "gradkern.ops.cross_entropy.cuda.kernel:build_rounding"
            yield launch_of(problem, config, builder, ["input_0", "output_0"], self._device), [f"{name} sums", name]
