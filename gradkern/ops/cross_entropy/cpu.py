"""Cross entropy and its gradients on the CPU: labels, weights and the reduction in NumPy, rows in two kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, REORDERED, kernel
from gradkern.cpu.element_types import array_type, destination, load, real, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.gelu import exp
from gradkern.cpu.sums import SPAN, rows_per_task
from gradkern.cpu.threads import QUEUE, take
from gradkern.errors import DataError
from gradkern.ops.cross_entropy.roles import Roles, empty_is_nan, roles_of
from gradkern.strides import is_dense, memory_order

_ELEMENTS = 1 << 16  # of a task, or one row
_LABELS, _NUMBERS = array_type(np.dtype(np.int64)), array_type(np.dtype(np.float64))


@numba.njit(**INLINE)
def _place(column: int, step: Any) -> Any:
    """Elements of a row are adjacent if `step` is None."""
    return column if step is None else column * step


@numba.njit(**INLINE)
def _logit(X: Any, at: int, cap: Any) -> Any:
    return load(X, at) if cap is None else real(X, cap) * real(X, math.tanh(load(X, at) / real(X, cap)))


@numba.njit(**REORDERED)
def _maximum(X: Any, first: int, columns: int, step: Any, cap: Any) -> Any:
    most = real(X, -np.inf)
    for column in range(columns):
        z = _logit(X, first + _place(column, step), cap)
        most = z if z > most else most
    return most


@numba.njit(**REORDERED)
def _exponentials(X: Any, first: int, begin: int, end: int, step: Any, cap: Any, most: Any) -> float:
    total = 0.0
    for start in range(begin, end, SPAN):
        part = real(X, 0)
        for column in range(start, min(start + SPAN, end)):
            part += exp(_logit(X, first + _place(column, step), cap) - most)
        total += part
    return total


@numba.njit(**INLINE)
def _target(T: Any, W: Any, at: int, column: int, e: float, share: float) -> float:
    """Of a class, without what the label itself adds; share: e / C."""
    w = 1.0 if W is None else load(W, column)
    return w * share if T is None else w * ((1 - e) * load(T, at) + share)


@kernel
def _forward(
    queue: Any, X: Any, labels: Any, weights: Any, T: Any, W: Any, factors: Any,
    log_prob: Any, dX: Any, losses: Any, entropies: Any,
    rows: int, columns: int, step: Any, rows_per_task: int, e: float, z_loss: float, cap: Any, capped: Any,
) -> None:  # fmt: skip
    """labels are below 0 where they do not count; weights are the labels' own. T: probabilities in place of labels.
    W: weights of classes. factors: of the rows' gradients. cap: what logits are to be capped by; capped: what they are
    capped by then. None: nothing.
    """
    log_target, target = destination(log_prob, X, X), destination(dX, X, X)
    share = e / columns
    task = take(queue)
    while task >= 0:
        begin = task * rows_per_task
        for row in range(begin, min(begin + rows_per_task, rows)):
            first = row * columns if step is None else row // step * (columns * step) + row % step
            y = labels[row]
            weight = 0.0 if y < 0 else (1 - e) * load(weights, row)
            most = _maximum(X, first, columns, step, cap)
            at_y = real(X, -np.inf)
            if y >= 0:
                at_y = _logit(X, first + _place(y, step), cap)
                others = _exponentials(X, first, 0, y, step, cap, most)
                others += _exponentials(X, first, y + 1, columns, step, cap, most)
                total = others + math.exp(at_y - most)
            else:
                others = total = _exponentials(X, first, 0, columns, step, cap, most)
            log = math.log(total)
            of_label = math.log1p(others / math.exp(at_y - most)) if at_y == most and y >= 0 else log - (at_y - most)
            counts, all_weights, products = y >= 0 or T is not None, 0.0, 0.0
            if T is not None or (e > 0 and y >= 0):
                for column in range(columns):
                    at = first + _place(column, step)
                    t = _target(T, W, at, column, e, share)
                    all_weights += t
                    products += t * (_logit(X, at, cap) - most)
            if losses is not None:
                loss = 0.0
                if counts:
                    loss = all_weights * log - products + z_loss * (most + log) ** 2
                    if y >= 0:
                        loss += weight * of_label
                store(losses, row, loss)
            if entropies is not None:
                entropy = log
                for column in range(columns):
                    z = _logit(X, first + _place(column, step), cap) - most
                    p = math.exp(z) / total
                    entropy -= 0.0 if p == 0 else p * z
                store(entropies, row, entropy)
            if log_prob is not None:
                shift = real(X, log)
                for column in range(columns):
                    at = first + _place(column, step)
                    store(log_target, at, _logit(X, at, cap) - most - shift)
                if y >= 0 and at_y == most:
                    store(log_target, first + _place(y, step), real(X, -of_label))
            if dX is not None and counts:
                factor = load(factors, row)
                scale = real(X, factor * (all_weights + 2 * z_loss * (most + log) + (0.0 if T is not None else weight)))
                inverse = real(X, 1 / total)
                exact = 0.0
                if y >= 0:
                    p = math.exp(at_y - most) / total
                    exact = (all_weights + 2 * z_loss * (most + log)) * p - weight * (others / total)
                    exact = factor * (exact - _target(T, W, first + _place(y, step), y, e, share))
                for column in range(columns):
                    at = first + _place(column, step)
                    z = _logit(X, at, cap)
                    slope = scale * (exp(z - most) * inverse)
                    if T is not None or e > 0:
                        slope -= real(X, factor * _target(T, W, at, column, e, share))
                    if capped is not None:
                        slope *= real(X, 1) - (z / real(X, capped)) * (z / real(X, capped))
                    store(target, at, slope)
                if y >= 0:
                    if capped is not None:
                        exact *= 1 - (at_y / capped) ** 2
                    store(target, first + _place(y, step), real(X, exact))
            elif dX is not None:
                for column in range(columns):
                    store(target, first + _place(column, step), real(X, 0))
        task = take(queue)


@kernel
def _backward(
    queue: Any, L: Any, labels: Any, T: Any, bias: Any, factors: Any, dX: Any,
    rows: int, columns: int, step: Any, rows_per_task: int,
) -> None:  # fmt: skip
    """factor (exp(L) - [column is the label, or T]) + bias."""
    target = destination(dX, L, bias)
    task = take(queue)
    while task >= 0:
        begin = task * rows_per_task
        for row in range(begin, min(begin + rows_per_task, rows)):
            first = row * columns if step is None else row // step * (columns * step) + row % step
            y, factor = labels[row], real(L, load(factors, row))
            counts = factor != real(L, 0)
            exact = 0.0
            if y >= 0 and counts:
                exact = math.expm1(load(L, first + _place(y, step))) * load(factors, row)
                if bias is not None:
                    exact += load(bias, first + _place(y, step))
            for column in range(columns):
                at = first + _place(column, step)
                p = exp(load(L, at))
                if T is not None:
                    p -= load(T, at)
                slope = factor * p if counts else real(L, 0)
                if bias is not None:
                    slope += load(bias, at)
                store(target, at, slope)
            if y >= 0 and counts:
                store(target, first + _place(y, step), real(L, exact))
        task = take(queue)


class LabelWeights(NamedTuple):
    """Of each row: its label's weight, 0 where it does not count, and whether it counts."""

    each: np.ndarray
    counted: np.ndarray


def label_weights(call: Call, given: Mapping[str, Any], classes: int) -> LabelWeights:
    """Raises DataError for a label that is no class."""
    roles = roles_of(call)
    assert roles.labels is not None
    labels = given[roles.labels]
    ignored = given.get("ignore_index", call.attributes.get("ignore_index"))
    counted = np.full(labels.shape, True) if ignored is None else labels != ignored
    outside = counted & ((labels < 0) | (labels >= classes))
    if outside.any():
        row = int(outside.argmax())
        but = "" if ignored is None else f", or ignore_index {ignored}"
        raise DataError(
            f"input {roles.labels} has {outside.sum()} labels that are no class, the first {labels[row]} in row {row}; "
            f"expected 0 to {classes - 1}{but}"
        )
    weights = counted.astype(np.float64)
    if roles.class_weight is not None:
        weights = np.where(counted, _exact(call, roles.class_weight, given)[np.where(counted, labels, 0)], 0.0)
    elif roles.row_weight is not None:
        weights = _exact(call, roles.row_weight, given)
    return LabelWeights(weights, counted)


def row_factors(call: Call, given: Mapping[str, Any], weights: LabelWeights) -> np.ndarray:
    """What the gradient of each row's own loss is multiplied with."""
    upstream = roles_of(call).upstream
    norm = np.float64(weights.each.sum() if call.attributes["reduction"] == "mean" else 1)
    if norm == 0:
        return np.full(weights.each.shape, np.nan if empty_is_nan(call) else 0.0)
    return (1.0 if upstream is None else _exact(call, upstream, given)) / norm + np.zeros(weights.each.shape)


def reduced(call: Call, losses: np.ndarray, weights: LabelWeights) -> Any:
    """The loss that the call's reduction makes of those of the rows."""
    if call.attributes["reduction"] == "none":
        return losses
    if call.attributes["reduction"] == "sum":
        return losses.sum(dtype=np.float64)
    if not weights.counted.any():
        return np.nan if empty_is_nan(call) else 0.0
    norm = weights.each.sum()
    return losses.sum(dtype=np.float64) / norm if norm != 0 else np.nan


class _Launch:
    def __init__(self, call: Call, roles: Roles, step: int | None, order: tuple[int, ...]) -> None:
        data = call.inputs[roles.data]
        self._call, self._roles, self._step = call, roles, step
        self._columns = data.shape[roles.axis]
        self._rows = data.size // max(1, self._columns)
        self._inputs = [*call.inputs, *call.scalars]
        self._nbytes = sum(each.nbytes for each in (*call.inputs.values(), *call.outputs.values()))
        self._rows_per_task = max(1, min(rows_per_task(self._rows), _ELEMENTS // max(1, self._columns)))
        self._compiled: Any = self._compile(order) if data.size else None

    def _compile(self, order: tuple[int, ...]) -> Any:
        call, roles = self._call, self._roles

        def of(name: str | None, over: tuple[str, str] | None = None) -> Any:
            return types.none if name is None else argument_type(call, name, over, order)

        sizes = (types.int64, types.int64, types.none if self._step is None else types.int64, types.int64)
        over = _over(roles)
        if not roles.forward:
            arrays = (of(roles.data), _LABELS, of(roles.probabilities), of(roles.bias), _NUMBERS)
            return _backward(QUEUE, *arrays, of(roles.gradient, over), *sizes)
        caps = [types.none if each is None else types.float64 for each in _caps(call)]
        numbers = (types.float64, types.float64, *caps)
        return _forward(
            QUEUE, of(roles.data), _LABELS, _NUMBERS, of(roles.probabilities), self._weights_type(), _NUMBERS,
            of(roles.log_prob, over), of(roles.gradient, over), _NUMBERS if self._losses else types.none,
            _NUMBERS if roles.entropy else types.none, *sizes, *numbers,
        )  # fmt: skip

    @property
    def _losses(self) -> bool:
        return self._roles.loss is not None or self._roles.row_loss is not None

    def _weights_type(self) -> Any:
        """Weights of classes are read where every class has a share of the target."""
        needed = self._roles.class_weight is not None and "label_smoothing" in self._call.attributes
        return _NUMBERS if needed else types.none

    @np.errstate(all="ignore")  # infinities and NaN go where they go, and what a type cannot hold is infinity in it
    def __call__(self, read: list[Any], write: list[Any]) -> None:
        call, roles, attributes = self._call, self._roles, self._call.attributes
        given = dict(zip(self._inputs, read, strict=True))
        made = dict(zip(call.outputs, write, strict=True))
        if not self._rows or not self._columns:
            for name, array in made.items():
                array[...] = 0
                if name == roles.loss and empty_is_nan(call):
                    self._write(made, name, np.nan)
            return
        if roles.labels is None:
            labels, weights = np.full(self._rows, -1), LabelWeights(np.ones(self._rows), np.full(self._rows, True))
        else:
            weights = label_weights(call, given, self._columns)
            labels = np.where(weights.counted, given[roles.labels], -1).astype(np.int64)
        factors = row_factors(call, given, weights)
        if not roles.forward:
            factors = np.where(weights.each == 0, 0.0, factors * weights.each)
        sizes = (self._rows, self._columns, self._step, self._rows_per_task)

        def of(name: str | None) -> Any:
            return None if name is None else given[name] if name in given else made[name]

        if not roles.forward:
            arrays = (of(roles.data), labels, of(roles.probabilities), of(roles.bias), factors, of(roles.gradient))
            self._run(*arrays, *sizes)
            return
        losses = np.empty(self._rows) if self._losses else None
        entropies = np.empty(self._rows) if roles.entropy else None
        name = roles.class_weight
        class_weights = None if name is None or self._weights_type() is types.none else _exact(call, name, given)
        self._run(
            of(roles.data), labels, weights.each, of(roles.probabilities), class_weights, factors,
            of(roles.log_prob), of(roles.gradient), losses, entropies, *sizes,
            attributes.get("label_smoothing", 0.0), attributes.get("z_loss", 0.0), *_caps(call),
        )  # fmt: skip
        if losses is not None:
            self._write(made, roles.loss, reduced(call, losses, weights))
            self._write(made, roles.row_loss, losses)
        self._write(made, roles.entropy, entropies)

    def _run(self, *arguments: Any) -> None:
        tasks = -(-self._rows // self._rows_per_task)
        threads.run(self._compiled, tasks, self._nbytes, *arguments)

    def _write(self, made: dict[str, Any], name: str | None, values: Any) -> None:
        if name is not None:
            dtype = self._call.outputs[name].dtype
            made[name].view(dtype)[...] = np.asarray(values).astype(dtype)


def _caps(call: Call) -> tuple[float | None, float | None]:
    """What the kernel caps logits by, and what they are capped by then."""
    capped = call.attributes.get("softcap") or None
    return None if call.attributes.get("capped") else capped, capped


def _exact(call: Call, name: str, given: Mapping[str, Any]) -> np.ndarray:
    return given[name].view(call.inputs[name].dtype).astype(np.float64)


def _over(roles: Roles) -> tuple[str, str]:
    return roles.data, roles.bias or roles.data


def plan(call: Call) -> FlatPlan:
    roles = roles_of(call)
    data = call.inputs[roles.data]
    large = [roles.data, *(name for name in (roles.probabilities, roles.bias, roles.log_prob, roles.gradient) if name)]
    tensors = {**call.inputs, **call.outputs}
    order = memory_order(data)
    if not all(is_dense(tensors[name], order) for name in large):
        order = tuple(range(len(data.shape)))
    place = order.index(roles.axis)
    inner = math.prod(data.shape[axis] for axis in order[place + 1 :])
    rows_order = tuple(axis - (axis > roles.axis) for axis in order if axis != roles.axis)
    of_rows = (roles.labels, roles.row_weight, roles.upstream, roles.loss, roles.row_loss, roles.entropy)
    orders: dict[str, Any] = dict.fromkeys(large, order)
    orders |= {name: rows_order for name in of_rows if name and len(tensors[name].shape) == len(rows_order)}
    launch = _Launch(call, roles, None if inner == 1 else inner, order)
    return FlatPlan(
        call, kernel="rows" if inner == 1 else "inner", outputs=tuple(call.outputs), launch=launch,
        over=_over(roles), orders=orders,
    )  # fmt: skip
