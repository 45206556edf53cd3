"""Compiled kernels on disk: kept, checked, rebuilt, raced for."""

from __future__ import annotations

import gc
import multiprocessing
import os
import weakref
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from gradkern.cuda import cache
from gradkern.cuda.compile import Compiled
from gradkern.cuda.spec import KernelSpec

KERNEL = Compiled(b"\x7fELF" + bytes(range(256)) * 40, 128, 0, "gradkern_kernel")
OTHER = Compiled(b"\x7fELF other", 64, 0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    return tmp_path / "cuda"


def refuse() -> Compiled:
    raise AssertionError("built again")


def test_a_kept_kernel_is_not_built_again() -> None:
    assert cache.fetch("key", lambda: KERNEL) == KERNEL
    assert cache.fetch("key", refuse) == KERNEL


def test_compiling_a_kernel_keeps_nothing_of_its_caller_alive() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    spec = KernelSpec("gradkern.search.kernels:fill", ("float32",), "gradkern_fill", 3, 128, 1, (9, 0))

    class Array:
        pass

    def call() -> weakref.ref[Array]:
        array = Array()
        cache.fetch("key", spec.compile)
        return weakref.ref(array)

    gc.collect()
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "foreign", "another's"])
def test_a_bad_entry_is_rebuilt_with_one_warning(folder: Path, damage: str) -> None:
    cache.fetch("key", lambda: KERNEL)
    path = folder / "key.cubin"
    data = path.read_bytes()
    if damage == "another's":
        cache.fetch("other", lambda: OTHER)
        path.write_bytes((folder / "other.cubin").read_bytes())
    else:
        flipped = data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
        path.write_bytes({"empty": b"", "truncated": data[:-9], "flipped": flipped, "foreign": b"GIF89a" * 99}[damage])
    with pytest.warns(RuntimeWarning, match="rebuilt") as caught:
        assert cache.fetch("key", lambda: KERNEL) == KERNEL
    assert len(caught) == 1
    assert cache.fetch("key", refuse) == KERNEL


def test_an_unwritable_cache_still_gives_the_kernel(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="cannot be written: File exists"):
        assert cache.fetch("key", lambda: KERNEL) == KERNEL


def race(_: int) -> bool:
    return cache.fetch("key", lambda: KERNEL) == KERNEL


@pytest.mark.thorough
def test_eight_processes_racing_on_an_empty_cache_all_get_it(folder: Path) -> None:
    with ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert all(pool.map(race, range(32)))
    assert sorted(os.listdir(folder)) == [".locks", "CACHEDIR.TAG", "key.cubin"]
