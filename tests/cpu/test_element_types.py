"""Element types of CPU kernels: every 16-bit code, every rounding, by instruction and by hand."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numba import int64

from gradkern.cpu import element_types
from gradkern.cpu.compile import Kernel
from gradkern.cpu.element_types import array_type, copy_line, load, real, store
from gradkern.cpu.threads import QUEUE, take

HALF, BFLOAT = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
CODES = np.arange(1 << 16).astype(np.uint16)


def copy(queue, source, target):
    task = take(queue)
    while task >= 0:
        for index in range(source.size):
            store(target, index, load(source, index))
        task = take(queue)


def copy_lines(queue, source, target, at, to, counts):
    """A line for each task, as many elements apart as the longest has and one more."""
    task = take(queue)
    while task >= 0:
        apart = task * (counts.size + 1)
        copy_line(source, apart + at, target, apart + to, counts[task])
        task = take(queue)


def convert(source: np.ndarray, dtype: np.dtype) -> np.ndarray:
    target = np.empty(source.size, dtype)
    compiled = Kernel(copy)(QUEUE, array_type(source.dtype), array_type(dtype))
    seen = (array.view(element_types.kernel_dtype(array.dtype)) for array in (source, target))
    compiled(np.array((0, 1)), *seen)
    return target


@pytest.fixture(params=["as on this CPU", "by bits"])
def half_conversion(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if request.param == "by bits":  # what a CPU without float16 instructions runs
        monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(element_types, "from_half", element_types.half_by_bits)
        monkeypatch.setattr(element_types, "to_half", element_types.round_by_bits)


@pytest.mark.parametrize("types", [(FLOAT, FLOAT), (HALF, FLOAT), (FLOAT, BFLOAT), (DOUBLE, DOUBLE)], ids=str)
def test_a_line_is_copied_and_nothing_beside_it(types: tuple[np.dtype, np.dtype], rng: np.random.Generator) -> None:
    counts = np.arange(-1, 45)
    source = rng.standard_normal(counts.size * (counts.size + 1)).astype(types[0])
    target = np.full(source.size, 7, types[1])
    expected = target.copy()
    for line, count in enumerate(counts):
        apart = line * (counts.size + 1)
        for j in range(count):
            expected[apart + 3 + j] = source[apart + 1 + j]
    arrays = [array.view(element_types.kernel_dtype(array.dtype)) for array in (source, target)]
    compiled = Kernel(copy_lines)(QUEUE, *(array_type(each) for each in types), *[int64] * 2, int64[::1])
    compiled(np.array((0, counts.size)), *arrays, 1, 3, counts)
    np.testing.assert_array_equal(target, expected)


@pytest.mark.usefixtures("half_conversion")
@pytest.mark.parametrize("dtype", [HALF, BFLOAT], ids=str)
def test_every_16_bit_code_is_widened_exactly(dtype: np.dtype) -> None:
    values = CODES.view(dtype)
    np.testing.assert_array_equal(convert(values, FLOAT), values.astype(np.float32))


@pytest.mark.usefixtures("half_conversion")
@pytest.mark.parametrize("dtype", [HALF, BFLOAT], ids=str)
def test_float32_is_rounded_to_the_nearest_with_ties_to_even(dtype: np.dtype, rng: np.random.Generator) -> None:
    with np.errstate(all="ignore"):
        exact = CODES.view(dtype).astype(np.float32)
        finite = np.sort(exact[np.isfinite(exact)].astype(np.float64))
        ties = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
        beside = [np.nextafter(ties, np.float32(end)) for end in (np.inf, -np.inf)]
        random = rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
        values = np.concatenate([exact, ties, *beside, random, [65519.996, 65520, -65520, 3.4e38, -3.4e38, 1e-45]])
        values = values.astype(np.float32)
        expected = values.astype(dtype)
    result = convert(values, dtype)
    nan = np.isnan(values)
    np.testing.assert_array_equal(result.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
    assert np.isnan(result[nan].astype(np.float32)).all()


@pytest.mark.parametrize("dtype", [FLOAT, np.dtype(np.float64)], ids=str)
def test_wide_types_pass_unchanged(dtype: np.dtype, rng: np.random.Generator) -> None:
    values = rng.standard_normal(100).astype(dtype)
    np.testing.assert_array_equal(convert(values, dtype), values)


def invert(queue, source, target):
    task = take(queue)
    while task >= 0:
        for index in range(source.size):
            store(target, index, real(source, 1) / load(source, index))
        task = take(queue)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT], ids=str)
def test_loops_over_16_bit_arrays_are_vector_code(
    dtype: np.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))  # Numba does not show the code of a kernel from its cache
    compiled: Any = Kernel(invert)(QUEUE, array_type(dtype), array_type(dtype))
    (assembly,) = compiled.inspect_asm().values()
    vector = ("divps", "divph", "fdiv\tv")  # one element at a time would be divss, divsh, fdiv s or h
    assert any(each in assembly for each in vector)
