"""Which copy of cuDNN is loaded, which is refused, and what its errors say."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.installed import cudnn, install, only

from gradkern.cudnn import library
from gradkern.cudnn.api import FUNCTIONS
from gradkern.cudnn.library import CudnnError, CudnnMissingError
from gradkern.errors import ProviderError
from gradkern.system import libraries


class FakeLibrary:
    """cuDNN as ctypes has it, of a version; `words` are its last error."""

    def __init__(self, path: str, number: int = 91000, words: bytes = b"") -> None:
        self.path = path
        for name in FUNCTIONS:
            setattr(self, name, _Function(name))
        self.cudnnGetVersion.answer = lambda: number
        self.cudnnGetErrorString.answer = lambda status: b"CUDNN_STATUS_NOT_SUPPORTED"

        def last(text: Any, size: int) -> None:
            text.value = words[: size - 1]

        self.cudnnGetLastErrorString.answer = last

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"undefined symbol: {name}")


class _Function:
    restype: Any = None
    argtypes: Any = None
    answer: Any = None

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> Any:
        return self.answer(*arguments)


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder that packages and libraries are looked for in, and no copy in the process."""
    monkeypatch.setattr(libraries, "loaded", lambda stem: [])
    monkeypatch.setattr(ctypes, "CDLL", FakeLibrary)
    install(only(tmp_path, monkeypatch), "cuda-bindings", "13.0.1")
    library._load.cache_clear()
    yield tmp_path
    library._load.cache_clear()


def refusal() -> str:
    with pytest.raises(CudnnMissingError) as caught:
        library.library()
    assert isinstance(caught.value, ProviderError)
    return str(caught.value)


REMEDY = "mend it: pip install 'nvidia-cudnn-cu13>=9.10,<10'"


def test_the_installed_copy_is_loaded_once_with_its_prototypes(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.10.0.56", cudnn("thirteen"))
    loaded = library.library()
    assert loaded.path == str(site / "nvidia/cudnn/lib/libcudnn.so.9")
    assert list(loaded.cudnnBackendFinalize.argtypes) == [ctypes.c_void_p]
    assert library.library() is loaded
    assert library.version() == (9, 10, 0)


def test_a_copy_that_the_process_has_is_taken_before_any_other(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "nvidia-cudnn-cu12", "9.10.0.56", cudnn("twelve"))
    monkeypatch.setattr(libraries, "loaded", lambda stem: ["/torch/lib/libcudnn.so.9"])
    assert library.library().path == "/torch/lib/libcudnn.so.9"


def test_two_copies_in_one_process_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "loaded", lambda stem: ["/a/libcudnn.so.9", "/b/libcudnn.so.9"])
    text = refusal()
    assert text.startswith("cuDNN: this process has 2 copies of it, /a/libcudnn.so.9 and /b/libcudnn.so.9; mend it: ")


def test_wheels_over_each_other_are_refused_with_the_remedy(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    install(site, "nvidia-cudnn-cu12", "9.19.0.56", cudnn("twelve"))
    assert refusal() == (
        "cuDNN: nvidia-cudnn-cu12 and nvidia-cudnn-cu13 are both installed, and hold the same files; "
        "nvidia-cudnn-cu12 has overwritten 2 libraries of nvidia-cudnn-cu13; mend it: "
        "pip uninstall -y nvidia-cudnn-cu12 nvidia-cudnn-cu13 && pip install 'nvidia-cudnn-cu13>=9.10,<10'"
    )


def test_no_copy_is_refused_until_there_is_one(site: Path) -> None:
    assert refusal() == f"cuDNN: not found; {REMEDY}"
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    assert library.library() is library.library()


def test_an_old_copy_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "nvidia-cudnn-cu13", "9.8.0.87", cudnn("thirteen"))
    monkeypatch.setattr(ctypes, "CDLL", lambda path: FakeLibrary(path, 90800))
    path = site / "nvidia/cudnn/lib/libcudnn.so.9"
    assert refusal() == f"cuDNN: {path} is 9.8.0; gradkern needs 9.10; {REMEDY}"


def test_a_copy_that_cannot_be_loaded_says_what_the_system_says(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> Any:
        raise OSError("invalid ELF header")

    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    monkeypatch.setattr(ctypes, "CDLL", fail)
    path = site / "nvidia/cudnn/lib/libcudnn.so.9"
    assert refusal() == f"cuDNN: {path} cannot be loaded: invalid ELF header; {REMEDY}"


def test_a_failed_status_carries_cudnns_own_words(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    monkeypatch.setattr(ctypes, "CDLL", lambda path: FakeLibrary(path, words=b"stride 3 has\n  invalid value"))
    library.check(0, "setting strides")
    with pytest.raises(CudnnError) as caught:
        library.check(3000, "setting strides")
    text = "cuDNN: setting strides failed: stride 3 has invalid value (CUDNN_STATUS_NOT_SUPPORTED)"
    assert (str(caught.value), caught.value.status) == (text, 3000)


def test_the_copies_in_a_process_are_read_from_its_map(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for name in ("a/libcudnn.so.9", "b/libcudnn.so.9.19.0", "a/libcudnn_ops.so.9"):
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).touch()
    (site / "c").mkdir()
    (site / "c/libcudnn.so.9").symlink_to(site / "a/libcudnn.so.9")
    names = ("a/libcudnn.so.9", "a/libcudnn.so.9", "c/libcudnn.so.9", "a/libcudnn_ops.so.9", "b/libcudnn.so.9.19.0")
    lines = [f"7f00{n}000-7f00{n}fff r-xp 00000000 fd:00 {n}    {site / name}" for n, name in enumerate(names)]
    (site / "maps").write_text("\n".join([*lines, "7ffd-7ffe rw-p 00000000 00:00 0   [stack]", ""]))
    expected = [str((site / name).resolve()) for name in ("a/libcudnn.so.9", "b/libcudnn.so.9.19.0")]
    assert libraries.loaded("cudnn", site / "maps") == expected
    assert libraries.loaded("cudnn", site / "none") == []


def test_nothing_is_loaded_at_import() -> None:
    module = "gradkern.ops.conv.cuda.cudnn"
    code = f"import {module}; from gradkern.system import libraries; print(libraries.loaded('cudnn'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
