"""Compiled CPU kernels on disk: kept, found again, and never trusted when damaged."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from gradkern.cpu import compile as compiling
from gradkern.cpu.compile import Kernel, cache_folder, clear_cache
from gradkern.cpu.element_types import array_type, load, real, store
from gradkern.cpu.threads import QUEUE, take

FLOAT = array_type(np.dtype(np.float32))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def double(queue, array):
    task = take(queue)
    while task >= 0:
        store(array, task, load(array, task) * real(array, 2))
        task = take(queue)


def compiled_and_right() -> object:
    compiled = Kernel(double)(QUEUE, FLOAT)
    array = np.ones(3, np.float32)
    compiled(np.array((0, 3)), array)
    np.testing.assert_array_equal(array, 2)
    return compiled


def hits(compiled: object) -> int:
    return sum(compiled.stats.cache_hits.values())  # type: ignore[attr-defined]


def test_a_kernel_is_compiled_once_and_then_loaded(cache: Path) -> None:
    assert hits(compiled_and_right()) == 0
    assert hits(compiled_and_right()) == 1
    assert cache_folder().is_relative_to(cache)


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("kept", [0, 10, 300])
def test_a_truncated_file_is_thrown_away_with_a_warning_and_the_kernel_compiled_anew(suffix: str, kept: int) -> None:
    compiled_and_right()
    (file,) = cache_folder().rglob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.warns(RuntimeWarning, match="compiling anew"):
        compiled_and_right()
    assert hits(compiled_and_right()) == 0
    assert hits(compiled_and_right()) == 1


def test_nothing_is_kept_where_nothing_can_be_written(cache: Path) -> None:
    cache.write_text("a file, not a folder")
    assert hits(compiled_and_right()) == 0
    assert hits(compiled_and_right()) == 0
    assert not list(Path(__file__).parent.glob("__pycache__/*.nbi"))


def test_element_types_have_a_folder_each_and_clear_removes_them(cache: Path) -> None:
    kernel = Kernel(double)
    for dtype in (np.float32, np.float64):
        kernel(QUEUE, array_type(np.dtype(dtype)))
    assert len(list(cache_folder().iterdir())) == 2
    clear_cache()
    assert not cache_folder().exists()


def test_a_change_in_any_kernel_source_changes_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "gradkern"
    shutil.copytree(Path(compiling.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    version = compiling._version.__wrapped__
    before = version()
    monkeypatch.setattr(compiling, "__file__", str(package / "cpu" / "compile.py"))
    assert version() == before
    for changed in ("cpu/gelu.py", "ops/layer_norm/cpu.py", "ops/conv/cpu/gemm.py"):
        with (package / changed).open("a") as source:
            source.write("#")
        after = version()
        assert after != before
        before = after


def test_old_versions_are_forgotten(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(f"version{number}" for number in range(20))
    for name in names:
        monkeypatch.setattr(compiling, "_version", lambda name=name: name)
        assert compiling._writable(cache_folder() / "kernel") is not None
    assert len(list((cache / "cpu").iterdir())) == compiling.KEPT_VERSIONS


def test_a_mistake_in_a_kernel_is_shown_as_such() -> None:
    def wrong(queue, array):
        array.no_such_attribute()

    with pytest.raises(compiling.NumbaError, match="no_such_attribute"):
        Kernel(wrong)(QUEUE, FLOAT)
