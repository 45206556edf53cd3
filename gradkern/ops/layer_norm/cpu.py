"""The three layer-norm gradients on the CPU: one kernel over rows, for all of them."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import AS_WRITTEN, INLINE, kernel
from gradkern.cpu.element_types import destination, load, real, store, zeros
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.sums import BLOCK, SPAN, RowSums, flush, rows_per_task
from gradkern.cpu.threads import QUEUE, take
from gradkern.errors import DataError

_SUMS = ("scale_grad", "bias_grad", "X_grad_sum")


@numba.njit(**INLINE)
def _normalized(X: Any, at: int, column: int, mu: float, r: float, scale: Any, bias: Any) -> float:
    if bias is not None:  # X is the output of the norm
        return (load(X, at) - load(bias, column)) / load(scale, column)
    return (load(X, at) - mu) * r


@numba.njit(**AS_WRITTEN)
def _gradient(g: float, xh: float, m1: float, m2: float, r: float) -> float:
    return r * (g - m1 - xh * m2)


@kernel
def _rows(
    queue: Any, Y_grad: Any, X: Any, scale: Any, bias: Any, mean: Any, inv_std: Any, residual: Any, X_grad: Any,
    branch_grad: Any, scale_sums: Any, bias_sums: Any, X_grad_sums: Any, rows: int, columns: int,
    rows_per_task: int,
) -> None:  # fmt: skip
    """bias is None but for the invertible form, mean but for the plain one, residual where nothing is added to X_grad;
    X_grad, branch_grad and the sums where not wanted, and inputs that only those depend on that are not.
    """
    target = destination(X_grad, Y_grad, X)
    task = take(queue)
    while task >= 0:
        partial = task * columns
        if scale_sums is not None:
            scale_sums[partial : partial + columns] = 0
        scale_block = zeros(Y_grad, 0 if scale_sums is None else columns)
        if bias_sums is not None:
            bias_sums[partial : partial + columns] = 0
        bias_block = zeros(Y_grad, 0 if bias_sums is None else columns)
        if X_grad_sums is not None:
            X_grad_sums[partial : partial + columns] = 0
        X_grad_block = zeros(Y_grad, 0 if X_grad_sums is None else columns)
        begin = task * rows_per_task
        end = min(begin + rows_per_task, rows)
        for row in range(begin, end):
            first = row * columns
            r = xh = mu = real(Y_grad, 0)
            if inv_std is not None:
                r = load(inv_std, row)
            if mean is not None:
                mu = load(mean, row)

            # s1 = sum D scale, s2 = sum D scale xh, scale_grad += D xh, bias_grad += D
            s1 = 0.0
            s2 = 0.0
            for start in range(0, columns, SPAN):
                part1 = real(Y_grad, 0)
                part2 = real(Y_grad, 0)
                for column in range(start, min(start + SPAN, columns)):
                    D = load(Y_grad, first + column)
                    if X is not None:
                        xh = _normalized(X, first + column, column, mu, r, scale, bias)
                    if X_grad is not None or branch_grad is not None or X_grad_sums is not None:
                        g = D * load(scale, column)
                        part1 += g
                        part2 += g * xh
                    if scale_sums is not None:
                        store(scale_block, column, load(scale_block, column) + D * xh)
                    if bias_sums is not None:
                        store(bias_block, column, load(bias_block, column) + D)
                s1 += part1
                s2 += part2

            # X_grad = r (D scale - s1/columns - xh s2/columns), X_grad_sum += X_grad
            if X_grad is not None or branch_grad is not None or X_grad_sums is not None:
                m1 = real(Y_grad, s1 / columns)
                m2 = real(Y_grad, s2 / columns)
                if mean is None and bias is None:
                    m1 = real(Y_grad, 0)
                for column in range(columns):
                    g = load(Y_grad, first + column) * load(scale, column)
                    xh = _normalized(X, first + column, column, mu, r, scale, bias)
                    value = _gradient(g, xh, m1, m2, r)
                    if residual is not None:
                        value += load(residual, first + column)
                    if X_grad is not None:
                        store(target, first + column, value)
                    if branch_grad is not None:
                        store(branch_grad, first + column, value)
                    if X_grad_sums is not None:
                        store(X_grad_block, column, load(X_grad_block, column) + value)

            if (row - begin) % BLOCK == BLOCK - 1 or row == end - 1:
                if scale_sums is not None:
                    flush(scale_block, scale_sums, partial)
                if bias_sums is not None:
                    flush(bias_block, bias_sums, partial)
                if X_grad_sums is not None:
                    flush(X_grad_block, X_grad_sums, partial)
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    rows, columns = prod(call.axes["rows"]), prod(call.axes["columns"])
    step = rows_per_task(rows)
    tasks = -(-rows // step)
    nbytes = sum(tensor.nbytes for tensor in (*call.inputs.values(), *call.outputs.values()))
    invertible, simplified = "bias" in call.inputs, "mean" not in call.inputs
    residual = "residual_grad" in call.inputs
    upstream, data, *_, deviation = (name for name in call.inputs if name != "residual_grad")
    over = (upstream, data)
    sums = RowSums(tasks, columns, [call.outputs[name].dtype if name in call.outputs else None for name in _SUMS])
    arguments = (upstream, data, "scale", "bias", "mean", deviation, "residual_grad", "X_grad", "branch_grad")
    of_X, of_scale = bool({"X_grad", "branch_grad", "X_grad_sum"} & call.outputs.keys()), "scale_grad" in call.outputs
    normalized = of_X or of_scale  # where only the bias has a gradient, the kernel reads Y_grad alone
    needed = (True, normalized, of_X or (of_scale and invertible), *(normalized,) * 3, of_X, True, True)
    compiled = _rows(
        QUEUE,
        *(
            argument_type(call, name, over) if each else types.none
            for name, each in zip(arguments, needed, strict=True)
        ),
        *sums.types,
        *(types.int64,) * 3,
    )
    scale_type = call.inputs["scale"].dtype

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        added = read.pop() if residual else None
        Y_grad, X, scale, *shift, inv_std = read
        X_grad, branch_grad, *totals = write
        bias = mean = None
        if invertible:
            bias = shift[0]
            _refuse_zeros(scale.view(scale_type))
        elif not simplified:
            mean = shift[0]
        partials = sums.partials()
        arrays = (Y_grad, X, scale, bias, mean, inv_std, added, X_grad, branch_grad)
        given = (array if each else None for array, each in zip(arrays, needed, strict=True))
        threads.run(compiled, tasks, nbytes, *given, *partials, rows, columns, step)
        sums.add(partials, totals)

    return FlatPlan(
        call,
        kernel="rows",
        outputs=("X_grad", "branch_grad", *_SUMS),
        launch=launch,
        over=over,
        scratch=sums.nbytes,
        repeatable=not invertible,
    )


def _refuse_zeros(scale: np.ndarray) -> None:
    if not scale.all():
        zeros = np.flatnonzero(scale == 0)
        raise DataError(
            f"input scale has {zeros.size} zeros, the first in column {zeros[0]}; "
            f"expected none, for the input of the norm is (Y - bias) / scale"
        )
