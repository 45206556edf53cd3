"""The arithmetic of cross entropy for the row block: logits to losses and log_prob or a gradient, and log_prob to a
gradient.

A row has four numbers r: the label, below 0 where it does not count; the factor of its gradient; its weight; and once
the maximum m is known, m log2(e). All exponentials are exp2(z log2(e) - r[3]), a single multiply-add before it; what
the rounding of r[3] changes is taken off the logarithm of their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64, uint32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.access import Reduction, RowArithmetic
from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.inner_kernel import inner_kernel
from gradkern.kernels.rows.kernel import rows_kernel
from gradkern.kernels.rows.problem import RowsTypes
from gradkern.ops.cross_entropy.cuda.config import LossConfig
from gradkern.ops.cross_entropy.cuda.labels import IGNORED, ZERO_ROW, label_loader, weight_of

LEAST = -1e4  # in place of minus infinity: exp of it is 0
_NEAR_ZERO = 0.25  # of a log probability: beyond, exp(x) - 1 has its digits


def build(types: RowsTypes, config: RowsConfig, loss: LossConfig) -> Callable[..., None]:
    """The kernel for these types and this config."""
    forward = types.reductions > 0
    arithmetic = forward_arithmetic(types, config, loss) if forward else _backward(types, config, loss)
    return (inner_kernel if config.inner else rows_kernel)(types, config, arithmetic)


def _constants(types: RowsTypes, *values: float) -> list[Any]:
    """In the type of arithmetic."""
    return [float(each) if types.compute == "float64" else float32(each) for each in values]


def _scalars(types: RowsTypes, loss: LossConfig, forward: bool) -> Callable[..., None]:
    """Without `forward` the factor has the weight."""
    load_label, weigh = label_loader(loss), weight_of(loss)
    FLOAT = float64 if types.compute == "float64" else float32
    LABELS, UPSTREAM, EACH, MEAN, FORWARD = bool(loss.labels), bool(loss.upstream), loss.each, loss.mean, forward
    WEIGHTED, SMOOTHING, NAN, OVERLAPS = loss.weighted, loss.smoothing, math.nan, loss.overlaps
    UPSTREAM_BYTES = ITEMSIZE[loss.upstream or "float32"]
    load_upstream, load_wide = i.loader("global", loss.upstream or "float32", 1), i.loader("global", "float64", 1)
    WIDE = float64 if loss.upstream == "float64" else float32

    @device_function
    def scalars(
        r: Any, labels: int, weight: int, upstream: int, factors: int, ignore_index: int, row: int, columns: int
    ) -> None:
        one, wide = cuda.local.array(1, WIDE), cuda.local.array(1, float64)
        if OVERLAPS:
            i.begin_next_launch()
        label, share = weigh(load_label(labels, int64(row)), weight, ignore_index, int64(row), columns)
        factor = float64(1)
        if UPSTREAM:
            place = int64(0)
            if EACH:
                place = int64(row)
            load_upstream(one, upstream + place * UPSTREAM_BYTES)
            factor = float64(one[0])
        if OVERLAPS:
            i.wait_for_launch_before()  # of sums over all labels
        if MEAN:
            load_wide(wide, factors)
            factor *= wide[0]
        if not FORWARD:
            factor = factor * share if share != 0 else float64(0)
        if label < IGNORED:
            factor, share = float64(NAN), float64(NAN)
        if not LABELS:
            share = SMOOTHING / float64(columns)
        r[0], r[1], r[2], r[3] = FLOAT(label), FLOAT(factor), FLOAT(share), FLOAT(columns)
        if WEIGHTED and LABELS:
            load_wide(wide, factors + 16)
            r[3] = FLOAT(wide[0])

    return scalars


@device_function
def _largest_and_sum(first: Any, second: Any, more: Any, other: Any) -> Any:
    return max(first, more), second + other


def _labels(config: RowsConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The device functions is_label(column, r), and apart as in RowArithmetic: a row whose gradient is 0 is, too."""
    WIDTH, INNER = config.width, config.inner

    @device_function
    def is_label(column: int, r: Any) -> Any:
        if INNER:  # one column for all rows of a vector: its number is converted, not each row's label
            return float32(int32(column)) == r[0]
        return int32(column) == int32(r[0])

    @device_function
    def apart(r: Any, column: int) -> Any:
        label = int32(r[0])
        return label == ZERO_ROW or uint32(int32(label - int32(column))) < uint32(WIDTH)

    return is_label, apart


def forward_arithmetic(types: RowsTypes, config: RowsConfig, loss: LossConfig) -> RowArithmetic:
    FLOAT = float64 if types.compute == "float64" else float32
    APPROXIMATE = types.inputs[0] in ("float16", "bfloat16")
    LABELS, ENTROPY, GRADIENT, WEIGHTED = bool(loss.labels), loss.entropy, loss.gradient, loss.weighted
    SMOOTHING, BIASED, BIAS = loss.smoothing > 0, loss.logit_bias, int(loss.weighted)
    CAPPED, CAPS = loss.softcap > 0, loss.caps
    Z = loss.z_loss > 0
    LOGS = ENTROPY or SMOOTHING or Z or not LABELS
    E, LEFT, Z_LOSS, CAP, INVERSE_CAP = _constants(
        types, loss.smoothing, 1 - loss.smoothing, loss.z_loss, loss.softcap, 1 / (loss.softcap or 1)
    )
    LOG2_E, LN_2, ZERO, ONE, TWO = _constants(types, 1 / math.log(2), math.log(2), 0, 1, 2)
    (LEAST_EXPONENT,) = _constants(types, LEAST)
    (LOWEST,) = _constants(types, -1e38)  # the same for a maximum, as differences are taken from it
    (NOTHING,) = _constants(types, -0.0)  # the compiler does not add it
    UNIT = LN_2 if APPROXIMATE else ONE  # of exponents
    is_label, apart = _labels(config)
    single = LABELS and not ENTROPY and not SMOOTHING  # sums of exponentials alone
    once = single and not config.inner
    TWICE_CAP, DOUBLED = _constants(types, 2 * loss.softcap, 2 / math.log(2) / (loss.softcap or 1))
    EXACT_LOG2_E = float(LOG2_E)

    @device_function
    def logit(x: Any, p: Any) -> Any:
        """softcap tanh(x / softcap); in 16 bits an absolute error of 2^-22 softcap is less than that of x."""
        if BIASED:
            x += p[BIAS]
        if CAPS and APPROXIMATE:
            x = CAP - TWICE_CAP * i.reciprocal_approximate(ONE + i.exp2_approximate(x * DOUBLED))
        elif CAPS:
            x = CAP * math.tanh(x * INVERSE_CAP)
        return x

    @device_function
    def shift_of(most: Any) -> Any:
        if once:
            most = max(most, LOWEST)
        return most * LOG2_E if APPROXIMATE else most

    @device_function
    def exponent(z: Any, shift: Any) -> Any:
        return z * LOG2_E - shift if APPROXIMATE else z - shift

    @device_function
    def power(exponent: Any) -> Any:
        return i.exp2_approximate(exponent) if APPROXIMATE else math.exp(exponent)

    @device_function
    def target(x: Any, p: Any, r: Any) -> Any:
        """Of a class, for probabilities; for labels its weight, for smoothing."""
        w = p[0] if WEIGHTED else ONE
        return w if LABELS else w * (LEFT * x[1] + r[2])

    def elements(labels: bool) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., None]]:
        """The functions of an element that may be the label."""

        @device_function
        def largest(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
            z = logit(x[0], p)
            second = NOTHING
            if labels:
                second = z if is_label(column, r) else ZERO
            elif not LABELS:
                second = target(x, p, r)
            return z, second

        @device_function
        def others(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
            z, second = logit(x[0], p), NOTHING
            difference = exponent(z, shift_of(totals[0]))
            e = power(difference)
            if ENTROPY:
                second = e * max(difference, LEAST_EXPONENT)
            elif SMOOTHING or not LABELS:
                second = target(x, p, r) * (z - totals[0])
            if labels:
                e = ZERO if is_label(column, r) else e
            return e, second

        @device_function
        def compute(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
            z = logit(x[0], p)
            if GRADIENT:
                slope = totals[2] * power(exponent(z, r[3]))
                if SMOOTHING or not LABELS:
                    slope -= r[1] * target(x, p, r)
                if CAPPED:
                    slope *= ONE - (z * INVERSE_CAP) * (z * INVERSE_CAP)
            else:
                slope = (z - r[1]) - totals[2]
            if labels:
                slope = totals[3] if is_label(column, r) else slope
                slope = ZERO if r[0] == ZERO_ROW else slope
            y[0] = slope

        return largest, others, compute

    @device_function
    def at_label(totals: Any, r: Any, shift: Any) -> Any:
        """The label's logit, and its exponential, 0 where no label counts."""
        of_label, e_label = totals[1], ZERO
        if LABELS and r[0] >= 0:
            e_label = power(exponent(of_label, shift))
        return of_label, e_label

    @device_function
    def inverse_of(x: Any) -> Any:
        return i.reciprocal_approximate(x) if APPROXIMATE else ONE / x

    @device_function
    def correction(most: Any, shift: Any) -> Any:
        """Of the logarithm of exponentials' sum."""
        return LN_2 * FLOAT(float64(most) * EXACT_LOG2_E - float64(shift)) if APPROXIMATE else ZERO

    @device_function
    def nll_of(most: Any, shift: Any, of_label: Any, e_label: Any, rest: Any) -> Any:
        largest = of_label == most
        nll = math.log1p(rest * inverse_of(e_label) if largest else (rest - ONE) + e_label)
        return nll if largest else (nll - correction(most, shift)) - (of_label - most)

    @device_function
    def results(values: Any, totals: Any, r: Any, columns: Any) -> None:
        """The loss, and the entropy."""
        most, rest, second = totals[0], totals[2], totals[3]
        shift = shift_of(most)
        of_label, e_label = at_label(totals, r, shift)
        total, log, nll = rest + e_label, ZERO, ZERO
        if LOGS:
            log = math.log(total)
            values[1] = log - UNIT * (second * inverse_of(total))
            log -= correction(most, shift)
        if LABELS:
            if r[0] >= 0:
                nll = nll_of(most, shift, of_label, e_label, rest)
            value = LEFT * r[2] * nll
            if SMOOTHING:
                share = E / columns
                value += share * r[3] * log - share * second
        else:
            value = of_label * log - second
        if Z:
            value += Z_LOSS * (most + log) * (most + log)
        values[0] = value
        if LABELS and r[0] == IGNORED:
            values[0] = ZERO

    @device_function
    def finish(totals: Any, r: Any, columns: Any) -> None:
        """Leaves the factor of the exponentials and the gradient at the label; or log, and log_prob."""
        most, rest = totals[0], totals[2]
        shift, factor = shift_of(most), r[1]
        of_label, e_label = at_label(totals, r, shift)
        total = rest + e_label
        inverse = inverse_of(total)
        log, z_slope = ZERO, ZERO
        if Z or not GRADIENT:
            log = math.log(total) - correction(most, shift)
            z_slope = TWO * Z_LOSS * (most + log)
        weight, all_weights, share = ZERO, ZERO, ZERO
        if LABELS:
            weight = LEFT * r[2]
            if SMOOTHING:
                share = E / columns
                all_weights = share * r[3]
        else:
            all_weights = of_label
        if LABELS and GRADIENT and r[0] == IGNORED:
            r[0] = FLOAT(ZERO_ROW)
        r[3] = shift
        if GRADIENT:
            totals[2] = factor * (weight + all_weights + z_slope) * inverse
            if LABELS:
                of_class = r[2] if WEIGHTED else ONE
                exact = (all_weights + z_slope) * (e_label * inverse) - weight * (rest * inverse) - share * of_class
                if CAPPED:
                    exact *= ONE - (of_label * INVERSE_CAP) * (of_label * INVERSE_CAP)
                totals[3] = factor * exact
                r[1] = factor * share
        else:
            totals[2], r[1] = log, most
            if LABELS:
                nll = ZERO
                if r[0] >= 0:
                    nll = nll_of(most, shift, of_label, e_label, rest)
                totals[3] = -nll

    @device_function
    def rescale(first: Any, second: Any, part: Any, total: Any) -> Any:
        return first * power(shift_of(part) - shift_of(total)), second

    largest, others, compute = elements(LABELS)
    plain_largest, plain_others, plain = elements(False)
    reductions = (
        Reduction(largest, _largest_and_sum, (-math.inf, 0.0), plain=plain_largest),
        Reduction(others, plain=plain_others, rescale=rescale if once else None, single=single),
    )
    arithmetic = RowArithmetic(reductions, compute, finish, _scalars(types, loss, True), 4, results=results)
    return replace(arithmetic, apart=apart, plain=plain) if LABELS else arithmetic


def _backward(types: RowsTypes, config: RowsConfig, loss: LossConfig) -> RowArithmetic:
    DOUBLE, APPROXIMATE = types.compute == "float64", types.inputs[0] in ("float16", "bfloat16")
    LABELS, BIAS = bool(loss.labels), len(types.inputs) - 1 if loss.biased else 0
    LOG2_E, ZERO, ONE, NEAR = _constants(types, 1 / math.log(2), 0, 1, -_NEAR_ZERO)
    HALF, THIRD, QUARTER, FIFTH, SIXTH = _constants(types, *(1 / n for n in range(2, 7)))
    is_label, _ = _labels(config)

    @device_function
    def less_one(p: Any, log: Any) -> Any:
        """p - 1 of p = exp(log)."""
        if DOUBLE:
            return math.expm1(log)
        series = log * (
            ONE + log * HALF * (ONE + log * THIRD * (ONE + log * QUARTER * (ONE + log * FIFTH * (ONE + log * SIXTH))))
        )
        return series if log > NEAR else p - ONE

    @device_function
    def compute(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
        share = i.exp2_approximate(x[0] * LOG2_E) if APPROXIMATE else math.exp(x[0])
        if LABELS:
            share = less_one(share, x[0]) if is_label(column, r) else share
        else:
            share -= x[1]
        slope = r[1] * share
        slope = ZERO if r[1] == 0 else slope
        if BIAS > 0:
            slope += x[BIAS]
        y[0] = slope

    return RowArithmetic((), compute, scalars=_scalars(types, loss, False), values=4)


@device_function
def _itself(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
    y[0] = x[0]


def build_rounding(types: RowsTypes, config: RowsConfig) -> Callable[..., None]:
    """The kernel that rounds a sum over parts, once: the row block without a reduction."""
    return rows_kernel(types, config, RowArithmetic((), _itself))
