"""The one table of tolerances: how far a result may be from float64 mathematics, by the type of the output."""

import ml_dtypes
import numpy as np

NORM = {"float64": 1e-13, "float32": 1e-6, "float16": 3e-4, "bfloat16": 2.2e-3}
"""||result - reference|| / ||reference||. One rounding costs 2.1e-4 in float16 and 1.7e-3 in bfloat16."""
CONV_NORM = {**NORM, "float32": 5e-6}
"""The same for convolutions without TF32."""
ULPS, SHARE_OF_ROW, SHORT = 2, 1e-6, 8
"""No element of dX further than this many units in its last place, plus this share of the largest in its row.

A row of fewer than SHORT may have no large one, where terms cancel in all of them: there the array's largest counts.
"""


FEW = 64
"""In a smaller output the roundings do not average out: the worst case of one rounding stands instead."""


def norm_of(operator: str, dtype: np.dtype, size: int = FEW) -> float:
    bound = (CONV_NORM if operator.startswith("Conv") else NORM)[dtype.name]
    one_rounding = float(ml_dtypes.finfo(dtype).eps) / 2
    return max(bound, one_rounding * 1.01) if size < FEW else bound


def assert_close(
    operator: str, name: str, result: np.ndarray, reference: np.ndarray, terms: np.ndarray | None = None
) -> None:
    """The result is as near to the float64 reference as its type allows, and NaN is where the reference has it.

    Where sums of arbitrary data may cancel, `terms` are what is summed: rounding is relative to their norm.
    """
    assert result.shape == reference.shape, f"{operator}.{name}: shape {result.shape}, expected {reference.shape}"
    if result.dtype.kind in "biu":
        np.testing.assert_array_equal(result, reference, err_msg=f"{operator}.{name}")
        return
    exact = result.astype(np.float64)
    finite = np.isfinite(reference) & (np.abs(reference) <= float(ml_dtypes.finfo(result.dtype).max))
    np.testing.assert_array_equal(np.isnan(exact), np.isnan(reference), err_msg=f"{operator}.{name}: NaN")
    beyond, most = ~finite & ~np.isnan(reference), float(ml_dtypes.finfo(result.dtype).max)
    message = f"{operator}.{name} {result.dtype}: where the reference is beyond the type's numbers"
    np.testing.assert_array_equal(np.sign(exact[beyond]), np.sign(reference[beyond]), err_msg=message)
    assert (np.abs(exact[beyond]) >= 0.99 * most).all(), message
    wrong, scale = np.linalg.norm((exact - reference)[finite]), np.linalg.norm(reference[finite])
    scale = scale if terms is None else max(scale, float(np.linalg.norm(terms)))
    limit = norm_of(operator, result.dtype, result.size)
    assert wrong <= limit * scale + float(ml_dtypes.finfo(result.dtype).smallest_subnormal) * np.sqrt(result.size), (
        f"{operator}.{name} {result.dtype}: {wrong / scale if scale else wrong:.2e} from float64; at most {limit:.1e}"
    )


def assert_elements_close(operator: str, name: str, result: np.ndarray, reference: np.ndarray) -> None:
    """No single element is off by more than the element bound; rows are along the last axis."""
    if result.size == 0 or result.dtype.kind in "biu":  # those are equal, as assert_close has them
        return
    type_ = ml_dtypes.finfo(result.dtype)
    power = np.exp2(np.frexp(np.abs(reference))[1] - 1.0)  # of two, at most the element
    last_place = np.maximum(power * float(type_.eps), float(type_.smallest_subnormal))
    row = np.abs(reference).max(axis=-1 if reference.shape[-1:] >= (SHORT,) else None, keepdims=True)
    excess = np.abs(result.astype(np.float64) - reference) - (ULPS * last_place + SHARE_OF_ROW * row)
    assert excess.max() <= 0, f"{operator}.{name} {result.dtype}: an element is {excess.max():.2e} beyond its bound"


SUMMED = 40
"""Roundings allowed relative to the terms, in epsilons: half of one for each of the 64 additions in a row, and a few
for all else."""


def assert_within_terms(
    result: np.ndarray, exact: np.ndarray, terms: np.ndarray, roundings: int = SUMMED, given: float = 0.0
) -> None:
    """Each element is within so many roundings of the arithmetic relative to its terms, and one of the stored type.

    `given` is the relative error of what the call was given, as statistics that were rounded: a few times that is
    allowed too, relative to the terms.
    """
    arithmetic = np.finfo(np.float64 if result.dtype == np.float64 else np.float32)
    stored = ml_dtypes.finfo(result.dtype)
    bound = (roundings * float(arithmetic.eps) + 3 * given) * terms + float(stored.eps) * np.abs(exact)
    bound += float(stored.smallest_subnormal) + float(arithmetic.tiny) * (1 + terms)
    fits = np.abs(exact) <= 0.9 * float(stored.max)
    fits &= terms <= 0.01 * float(arithmetic.max)  # no sum on the way overflows
    wrong = np.abs(result.astype(np.float64) - exact)[fits]
    assert (wrong <= bound[fits]).all(), f"{np.max(wrong / bound[fits]):.2f} times the bound"
