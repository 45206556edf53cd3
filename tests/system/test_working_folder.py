"""Kernels are compiled in a process whose working folder is no more, for CPUs and by both front ends for GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from gradkern.cpu.compile import Kernel
from gradkern.cuda import compile as compiling
from gradkern.cuda.spec import KernelSpec

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def _no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "cache"))
    before, gone = os.getcwd(), tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    yield
    os.chdir(before)


def fill(array: Any) -> None:
    for place in range(array.size):
        array[place] = 1


def test_for_a_cpu() -> None:
    array = np.zeros(3, np.float32)
    Kernel(fill)(numba.float32[::1])(array)
    assert array.tolist() == [1, 1, 1]


@pytest.mark.parametrize("own", [True, False])
def test_for_a_gpu(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba_cuda")
    pytest.importorskip("cuda.core")
    if not own:
        monkeypatch.setattr(compiling, "front_end", lambda: None)
    spec = KernelSpec("gradkern.search.kernels:fill", ("bfloat16",), "fill", 3, 256, 1, (8, 0))
    assert spec.compile().cubin.startswith(b"\x7fELF")
