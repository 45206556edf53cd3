"""cuBLAS behind its handle: what it is told, and in which order."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern.call import Refusal
from gradkern.cublas import library
from gradkern.cublas.product import Batch, Gemm, Matrix, Product, gemms
from gradkern.cuda.device import Device
from gradkern.errors import ProviderError

PLAIN = Product(3, 4, 5, Matrix(0, 0, 5, 1), Matrix(1, 0, 4, 1), Matrix(2, 0, 4, 1), "float32", "float32")


class Recorder:
    """In place of nvmath's module."""

    class Math:
        DISALLOW_REDUCED_PRECISION_REDUCTION = 16

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def create(self) -> int:
        return 77

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(library, "bindings", lambda: recorder)
    return recorder


def test_reduced_precision_sums_are_forbidden_from_the_start(recorder: Recorder) -> None:
    library.Handle()
    assert recorder.calls == [("set_math_mode", 77, 16)]


def test_the_stream_is_told_before_the_workspace_and_only_when_it_changes(recorder: Recorder) -> None:
    handle = library.Handle()
    recorder.calls.clear()
    for _ in range(2):
        handle.use(5, 4096, 256)
    assert recorder.calls == [("set_stream", 77, 5), ("set_workspace", 77, 4096, 256)]
    handle.use(5, 8192, 256)
    assert recorder.calls[2:] == [("set_stream", 77, 5), ("set_workspace", 77, 8192, 256)]


def test_a_failure_says_what_was_done_and_keeps_the_librarys_words() -> None:
    error = type("cuBLASError", (Exception,), {"__module__": "nvmath.bindings.cublas"})
    failing = pytest.raises(ProviderError, match="cuBLAS: a matrix product failed: CUBLAS_STATUS_INVALID_VALUE")
    with failing as caught, library.wrapped("a matrix product"):
        raise error("CUBLAS_STATUS_INVALID_VALUE")
    assert isinstance(caught.value.__cause__, error)
    with pytest.raises(KeyError), library.wrapped("a matrix product"):
        raise KeyError


def test_without_the_bindings_no_product_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    library.bindings.cache_clear()
    with pytest.raises(Refusal, match="cuBLAS cannot be loaded"):
        library.bindings()


def test_the_workspace_is_what_nvidia_recommends() -> None:
    sizes = [library.workspace_bytes(Device(0, each, 1, 1)) for each in ((7, 5), (8, 0), (9, 0), (12, 0))]
    assert sizes == [4 << 20, 4 << 20, 32 << 20, 32 << 20]


def test_rows_that_are_adjacent_are_cublas_columns_of_the_transposed(recorder: Recorder) -> None:
    (gemm,) = gemms(PLAIN)
    handle = library.Handle()
    gemm(handle, (1000, 2000, 3000))
    name, _, *arguments = recorder.calls[-1]
    assert name == "gemm_ex_64"
    assert arguments[:5] == [0, 0, 4, 3, 5]  # C^T = B^T A^T, both as they lie
    assert arguments[6:9] == [2000, 0, 4]
    assert arguments[9:12] == [1000, 0, 5]
    assert arguments[13:16] == [3000, 0, 4]
    assert arguments[16:] == [68, -1]


@pytest.mark.parametrize(
    ("dtype", "tf32", "compute"),
    [
        ("float64", True, 70),
        ("float32", False, 68),
        ("float32", True, 77),
        ("float16", True, 68),
        ("bfloat16", False, 68),
    ],
)
def test_float32_is_multiplied_in_float32_unless_tf32_is_asked_for(
    recorder: Recorder, dtype: str, tf32: bool, compute: int
) -> None:
    (gemm,) = gemms(replace(PLAIN, dtype=dtype, result_dtype=dtype, tf32=tf32))
    handle = library.Handle()
    gemm(handle, (0, 0, 0))
    assert recorder.calls[-1][-2] == compute


def test_batches_that_continue_one_another_are_one_call() -> None:
    def count(*batches: Batch) -> int:
        return len(list(gemms(replace(PLAIN, batches=batches))))

    assert count(Batch(6, 60, 80, 48), Batch(4, 15, 20, 12)) == 1
    assert count(Batch(6, 60, 0, 48), Batch(4, 15, 20, 12)) == 4  # the longer one is the call's, the other a loop
    assert count(Batch(1, 7, 7, 7), Batch(4, 15, 20, 12)) == 1


@pytest.mark.parametrize("strides", [(2, 2), (0, 1), (3, 1)])
def test_a_result_that_is_no_matrix_does_not_fit(strides: tuple[int, int]) -> None:
    with pytest.raises(Refusal, match="not a matrix"):
        Gemm(Product(3, 4, 5, PLAIN.left, PLAIN.right, Matrix(2, 0, *strides), "float32", "float32"), None)


def test_a_sum_of_no_terms_does_not_fit() -> None:
    with pytest.raises(Refusal, match="nothing to multiply"):
        list(gemms(Product(3, 4, 0, PLAIN.left, PLAIN.right, PLAIN.result, "float32", "float32")))
