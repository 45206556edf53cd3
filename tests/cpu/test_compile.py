"""Compiled CPU kernels on disk: cached, found again, and never trusted when damaged or another's."""

import errno
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.errors import NumbaError

from gradkern.cpu import cache as cached
from gradkern.cpu import compile as compiling
from gradkern.cpu.compile import Kernel
from gradkern.cpu.element_types import array_type, load, real, store
from gradkern.cpu.threads import QUEUE, take
from gradkern.errors import ProviderError
from gradkern.system import cache_files, sources

pytestmark = pytest.mark.thorough

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


def compiled_and_right() -> Any:
    compiled = Kernel(double)(QUEUE, FLOAT)
    array = np.ones(3, np.float32)
    compiled(np.array((0, 3)), array)
    np.testing.assert_array_equal(array, 2)
    return compiled


def hits(compiled: Any) -> int:
    return sum(compiled.stats.cache_hits.values())


def the_file() -> Path:
    (file,) = cache_files.entries("cpu")
    return file


def test_a_kernel_is_compiled_once_and_then_loaded(cache: Path) -> None:
    assert hits(compiled_and_right()) == 0
    assert hits(compiled_and_right()) == 1
    assert the_file() == Kernel(double).path(QUEUE, FLOAT)
    assert the_file().is_relative_to(cache)


COMPILED = """
import gradkern, numpy as np
from gradkern.cpu.compile import _Cache

def save(self, *compiled):
    print(self.cache_path.name)
    own(self, *compiled)

own, _Cache.save_overload = _Cache.save_overload, save
x = np.ones((2, 8), np.float32)
input()
assert gradkern.run("BiasGeluGrad_dX", x, x, x[0]).dX.shape == x.shape
"""


def test_what_processes_want_at_once_one_compiles_and_others_wait_for(cache: Path) -> None:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started: list[Any] = [subprocess.Popen([sys.executable, "-c", COMPILED], **pipes) for _ in range(3)]
    for each in started:
        each.stdin.write("\n")
        each.stdin.flush()
    found = [each.communicate(timeout=120)[0].split() for each in started]
    assert [each.returncode for each in started] == [0, 0, 0]
    assert sorted(chain(*found)) == sorted(each.name for each in cache_files.entries("cpu"))


@pytest.mark.parametrize("kept", [0, 10, 30, 300, -1])
def test_a_truncated_file_is_compiled_anew_with_a_warning(kept: int) -> None:
    compiled_and_right()
    the_file().write_bytes(the_file().read_bytes()[:kept])
    with pytest.warns(RuntimeWarning, match=r"\.kernel is compiled anew: it"):
        assert hits(compiled_and_right()) == 0
    assert hits(compiled_and_right()) == 1


def test_no_flipped_bit_is_loaded(rng: np.random.Generator) -> None:
    compiled_and_right()
    whole = the_file().read_bytes()
    for place in [0, 20, 60, len(whole) - 1, *rng.integers(len(whole), size=200)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.integers(8)
        the_file().write_bytes(damaged)
        with pytest.raises(ValueError, match=r"no file of this format|digest does not fit"):
            cached.read(the_file())


class Planted:
    """Whoever unpickles it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


def test_a_pickle_without_the_seal_is_not_run(tmp_path: Path) -> None:
    compiled_and_right()
    the_file().write_bytes(pickle.dumps(Planted(tmp_path / "run")))
    with pytest.warns(RuntimeWarning, match="it is no file of this format"):
        compiled_and_right()
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_another_user_owns_is_not_run(tmp_path: Path, what: str) -> None:
    compiled_and_right()
    file = the_file()
    cached.write(file, pickle.dumps(Planted(tmp_path / "run")))  # sealed as gradkern seals
    os.chown(file if what == "file" else file.parent, 12345, 12345)
    with pytest.warns(RuntimeWarning, match=r"is not used: it belongs to another user \(uid 12345\)"):
        compiled_and_right()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_other_users_may_write_is_not_run(tmp_path: Path, what: str, mode: int) -> None:
    compiled_and_right()
    file = the_file()
    cached.write(file, pickle.dumps(Planted(tmp_path / "run")))
    (file if what == "file" else file.parent).chmod(mode)
    with pytest.warns(RuntimeWarning, match="is not used: other users may write it"):
        compiled_and_right()
    assert not (tmp_path / "run").exists()


def test_folders_and_files_are_for_their_owner_alone(cache: Path) -> None:
    before = os.umask(0)
    try:
        compiled_and_right()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (cache, cache / "cpu", the_file())] == [0o700, 0o700, 0o600]


def test_a_cache_that_cannot_be_written_is_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was built into an image and mounted for reading."""

    def read_only(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    compiled_and_right()
    for path, mode in ((the_file(), 0o444), (cache / "cpu", 0o555), (cache, 0o555)):
        path.chmod(mode)
    for module, name in ((tempfile, "mkstemp"), (tempfile, "TemporaryFile"), (os, "mkdir"), (os, "replace")):
        monkeypatch.setattr(module, name, read_only)  # nothing holds root back
    try:
        assert hits(compiled_and_right()) == 1
        the_file().chmod(0o666)
        with (
            pytest.warns(RuntimeWarning, match="other users may write it"),
            pytest.warns(RuntimeWarning, match="cannot be written: Read-only file system"),
        ):
            assert hits(compiled_and_right()) == 0
    finally:
        cache.chmod(0o700)
        (cache / "cpu").chmod(0o700)


def test_nothing_is_cached_where_nothing_can_be_written(cache: Path) -> None:
    cache.write_text("a file, not a folder")
    with pytest.warns(RuntimeWarning, match="cannot be written: File exists; what is compiled"):
        assert hits(compiled_and_right()) == 0
    assert hits(compiled_and_right()) == 0  # and no second warning


def test_nothing_is_written_among_the_files_of_others(cache: Path) -> None:
    (cache / "cpu").mkdir(parents=True)
    note = cache / "cpu" / "note.txt"
    note.write_text("somebody else's")
    with pytest.warns(RuntimeWarning, match=r"cpu is not used: it is not gradkern's: it has 'note.txt'"):
        compiled_and_right()
    assert list((cache / "cpu").iterdir()) == [note]


def test_element_types_have_a_file_each() -> None:
    kernel = Kernel(double)
    for dtype in (np.float32, np.float64):
        kernel(QUEUE, array_type(np.dtype(dtype)))
    assert len(cache_files.entries("cpu")) == 2


@pytest.mark.parametrize(
    "setting", ["OPT", "LOOP_VECTORIZE", "CPU_NAME", "BOUNDSCHECK", "ENABLE_AVX", "DEBUGINFO_DEFAULT"]
)
def test_settings_that_change_the_code_change_the_file(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Kernel(double).path(QUEUE, FLOAT)
    monkeypatch.setattr(compiling.settings, setting, 1 if setting != "LOOP_VECTORIZE" else 0)
    assert Kernel(double).path(QUEUE, FLOAT) != before


@pytest.mark.parametrize("setting", ["NUMBA_NUM_THREADS", "CACHE_DIR", "CUDA_LOG_LEVEL"])
def test_settings_that_do_not_change_the_code_do_not(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Kernel(double).path(QUEUE, FLOAT)
    monkeypatch.setattr(compiling.settings, setting, "another")
    assert Kernel(double).path(QUEUE, FLOAT) == before


def test_without_the_compiler_a_clear_error_and_nothing_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_and_right()
    monkeypatch.setattr(compiling.settings, "DISABLE_JIT", 1)
    with pytest.raises(ProviderError, match=r"^NUMBA_DISABLE_JIT is set, and the CPU provider is compiled by Numba"):
        compiled_and_right()
    assert the_file().exists()


def test_a_change_in_any_source_that_a_kernel_imports_changes_its_digest(tmp_path: Path) -> None:
    package = tmp_path / "gradkern"
    shutil.copytree(Path(compiling.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    modules = ("gradkern.ops.bias_gelu.cpu", "gradkern.cpu.compile")

    def digest() -> str:
        for each in (sources.digest, sources._imports):
            each.cache_clear()
        return sources.digest(*modules, root=tmp_path)

    before = digest()
    for changed in ("cpu/gelu.py", "cpu/sums.py", "cpu/element_types.py", "ops/bias_gelu/cpu.py"):
        with (package / changed).open("a") as source:
            source.write("#")
        after = digest()
        assert after != before
        before = after
    with (package / "ops/layer_norm/cpu.py").open("a") as source:
        source.write("#")
    assert digest() == before


def test_without_sources_kernels_are_compiled_and_not_cached(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def unreadable(*modules: str) -> str:
        raise NotADirectoryError("gradkern.zip/gradkern/cpu/compile.py")

    monkeypatch.setattr(compiling.sources, "digest", unreadable)
    compiling._sources.cache_clear()
    with pytest.warns(RuntimeWarning, match="compiled anew in every process: sources cannot be read: gradkern.zip"):
        compiled_and_right()
    assert not cache.exists()


def test_the_kernels_written_longest_ago_are_forgotten(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "_MOST", 3)
    names = [f"rows-{number:064x}.kernel" for number in range(5)]
    for number, name in enumerate(names):
        cached.write(cache_files.folder("cpu") / name, b"")
        os.utime(cache_files.folder("cpu") / name, (number, number))
    cached.write(cache_files.folder("cpu") / f"rows-{9:064x}.kernel", b"")
    assert [path.name for path in cache_files.entries("cpu")] == [*names[3:], f"rows-{9:064x}.kernel"]


def test_a_mistake_in_a_kernel_is_shown_as_such() -> None:
    def wrong(queue, array):
        array.no_such_attribute()

    with pytest.raises(NumbaError, match="no_such_attribute"):
        Kernel(wrong)(QUEUE, FLOAT)
