"""`gradkern cache`: what is kept is counted, checked and removed, and nothing else is."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import gradkern
from gradkern import cli
from gradkern.cli import caches
from gradkern.cpu.compile import Kernel, cache_folder
from gradkern.cuda import cache as cubins
from gradkern.cuda.compile import Compiled
from gradkern.search import store
from gradkern.system import cache_files

Shown = Callable[..., tuple[int, str, str]]
KEY = "0123456789abcdef" * 4
NO_SEARCH = "  search 0 searches, 0 bytes\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


@pytest.fixture
def show(folder: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Run `gradkern cache` with these arguments: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["cache", *arguments])
        return code, *capsys.readouterr()

    return run


def fill(array):
    array[:] = 1


@pytest.fixture
def kept(folder: Path) -> tuple[Path, Path]:
    """One kernel for CPUs and one for GPUs, kept as the providers keep them."""
    Kernel(fill)(numba.float32[::1])
    cubins.fetch(KEY, lambda: Compiled(b"machine code", 32, 0))
    (entry,) = cache_folder().iterdir()
    return entry, folder / "cuda" / f"{KEY}.cubin"


def size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def as_json(show: Shown, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = show(*arguments, "--json")
    document = json.loads(out)
    assert (document.pop("schema"), document.pop("gradkern")) == (2, gradkern.__version__)
    return code, document


# --- info ------------------------------------------------------------------------------------------------------------


def test_an_empty_cache_has_no_kernels(show: Shown, folder: Path) -> None:
    assert show("info") == (0, f"{folder}\n  cpu    0 kernels, 0 bytes\n  cuda   0 kernels, 0 bytes\n{NO_SEARCH}", "")


def test_kernels_of_both_providers_are_counted(show: Shown, folder: Path, kept: tuple[Path, Path]) -> None:
    cpu, cuda = size(folder / "cpu"), size(folder / "cuda")
    assert (
        show("info")[1] == f"{folder}\n  cpu    1 kernel, {cpu:,} bytes\n  cuda   1 kernel, {cuda:,} bytes\n{NO_SEARCH}"
    )
    assert as_json(show, "info") == (
        0,
        {
            "folder": str(folder),
            "writable": True,
            "providers": {
                "cpu": {"kernels": 1, "bytes": cpu, "versions": 1},
                "cuda": {"kernels": 1, "bytes": cuda, "versions": None},
            },
            "searches": {"kept": 0, "bytes": 0},
        },
    )


def test_kernels_of_several_versions_are_told_apart(show: Shown, folder: Path, kept: tuple[Path, Path]) -> None:
    older = folder / "cpu" / "older" / "fill-0"
    older.mkdir(parents=True)
    (older / "fill.nbi").write_bytes(b"")
    assert "  cpu    2 kernels of 2 versions, " in show("info")[1]


def test_a_folder_that_cannot_be_written_is_said_to_keep_nothing(show: Shown, folder: Path) -> None:
    folder.write_text("a file, not a folder")
    assert show("info")[1].splitlines()[0] == f"{folder} (cannot be written: File exists; nothing is kept)"
    assert as_json(show, "info")[1]["writable"] is False


# --- verify ----------------------------------------------------------------------------------------------------------

WHOLE = (
    "cpu    {} whole and readable, unless named below; Numba's files have no digest\n"
    "cuda   {} as the digest says, unless named below\n"
    "search 0 searches as the digest says, unless named below\n"
)


def test_sound_kernels_pass(show: Shown, kept: tuple[Path, Path]) -> None:
    assert show("verify") == (0, WHOLE.format("1 kernel", "1 kernel"), "")


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("length", [0, 10, 300, -1])
def test_a_truncated_file_of_numba_is_found(show: Shown, kept: tuple[Path, Path], suffix: str, length: int) -> None:
    (file,) = kept[0].rglob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[:length])
    code, out, _ = show("verify")
    assert code == 1
    assert f"bad    {kept[0]}: {file.name} is damaged: " in out
    assert out.endswith("remove the bad ones: gradkern cache verify --repair\n")


def test_an_index_without_machine_code_is_found(show: Shown, kept: tuple[Path, Path]) -> None:
    (file,) = kept[0].rglob("*.nbc")
    file.unlink()
    assert f"bad    {kept[0]}: it has an index and no machine code\n" in show("verify")[1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1], "its digest does not fit its content"),
        (lambda data: data[:20], "its digest does not fit its content"),
        (lambda data: data[:5], "it is no file of this format"),
        (lambda data: b"", "it is no file of this format"),
        (lambda data: data[:-1] + b"!", "its digest does not fit its content"),
    ],
)
def test_a_damaged_cubin_is_found(
    show: Shown, kept: tuple[Path, Path], change: Callable[[bytes], bytes], reason: str
) -> None:
    kept[1].write_bytes(change(kept[1].read_bytes()))
    code, out, _ = show("verify")
    assert code == 1
    assert f"bad    {kept[1]}: {reason}\n" in out


def test_a_cubin_under_another_name_is_found(show: Shown, kept: tuple[Path, Path]) -> None:
    other = kept[1].with_name("other.cubin")
    kept[1].rename(other)
    assert f"bad    {other}: it holds another kernel\n" in show("verify")[1]


def test_what_cannot_be_read_is_bad_in_the_systems_words(show: Shown, kept: tuple[Path, Path]) -> None:
    kept[1].unlink()
    kept[1].mkdir()
    assert f"bad    {kept[1]}: it cannot be read: Is a directory\n" in show("verify")[1]


def test_repair_removes_the_bad_ones_and_leaves_the_others(show: Shown, kept: tuple[Path, Path]) -> None:
    (index,) = kept[0].rglob("*.nbi")
    index.write_bytes(b"")
    code, found = as_json(show, "verify", "--repair")
    assert (code, found["checked"]) == (0, {"cpu": 1, "cuda": 1, "search": 0})
    (bad,) = found["bad"]
    assert (bad["path"], bad["removed"]) == (str(kept[0]), True)
    assert not kept[0].exists()
    assert kept[1].exists()
    assert show("verify") == (0, WHOLE.format("0 kernels", "1 kernel"), "")


def test_without_repair_nothing_is_removed(show: Shown, kept: tuple[Path, Path]) -> None:
    kept[1].write_bytes(b"")
    assert as_json(show, "verify")[1]["bad"] == [
        {"path": str(kept[1]), "reason": "it is no file of this format", "removed": False}
    ]
    assert kept[1].exists()


def test_the_providers_make_anew_what_repair_has_removed(show: Shown, kept: tuple[Path, Path]) -> None:
    for path in (*kept[0].rglob("*.nb?"), kept[1]):
        path.write_bytes(b"")
    assert show("verify", "--repair")[0] == 0
    array = np.zeros(2, np.float32)
    Kernel(fill)(numba.float32[::1])(array)
    assert array.tolist() == [1, 1]
    assert cubins.fetch(KEY, lambda: Compiled(b"anew", 32, 0)).cubin == b"anew"


# --- clear -----------------------------------------------------------------------------------------------------------


def test_clear_removes_all_kernels_and_nothing_else(show: Shown, folder: Path, kept: tuple[Path, Path]) -> None:
    note = folder / "note.txt"
    note.write_text("somebody else's")
    taken = size(folder / "cpu") + size(folder / "cuda")
    assert show("clear") == (0, f"removed 2 kernels and 0 searches, {taken:,} bytes, from {folder}\n", "")
    assert list(folder.iterdir()) == [note]
    assert as_json(show, "clear") == (0, {"folder": str(folder), "kernels": 0, "searches": 0, "bytes": 0, "left": []})


def test_what_cannot_be_removed_is_exit_code_one(
    show: Shown, kept: tuple[Path, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches.shutil, "rmtree", lambda path, ignore_errors: None)
    code, _, err = show("clear")
    assert (code, err) == (1, f"{folder / 'cpu'} cannot be removed whole\n{folder / 'cuda'} cannot be removed whole\n")


# --- searches --------------------------------------------------------------------------------------------------------


@pytest.fixture
def search(folder: Path) -> Path:
    """One search, kept as searches are."""
    store.save(store.SearchResult("ConvGrad dX", {"task": "a problem"}, (), (), True, 1.5))
    (path,) = (folder / "search").iterdir()
    return path


def test_searches_are_counted_checked_and_removed(show: Shown, folder: Path, search: Path) -> None:
    assert f"  search 1 search, {size(folder):,} bytes\n" in show("info")[1]
    assert "search 1 search as the digest says" in show("verify")[1]
    assert show("clear")[1].startswith("removed 0 kernels and 1 search, ")
    assert not search.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "its digest does not fit its content"),
        (lambda path: path.write_bytes(b""), "it is no file of this format"),
        (lambda path: path.rename(path.with_name("other.json")), "it answers another question"),
    ],
)
def test_a_damaged_search_is_found(
    show: Shown, folder: Path, search: Path, change: Callable[[Path], Any], reason: str
) -> None:
    change(search)
    (path,) = (folder / "search").iterdir()
    code, out, _ = show("verify")
    assert (code, f"bad    {path}: {reason}\n" in out) == (1, True)
    assert show("verify", "--repair")[0] == 0
    assert not path.exists()


# --- the command -----------------------------------------------------------------------------------------------------


def test_both_providers_keep_kernels_where_disk_says(folder: Path) -> None:
    assert cache_folder().parent == cache_files.folder("cpu") == folder / "cpu"
    assert cubins.folder() == cache_files.folder("cuda") == folder / "cuda"


def test_without_the_variable_the_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRADKERN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert "gradkern" in cache_files.root().parts
    assert cache_files.root().is_relative_to(tmp_path) or sys.platform == "win32"


@pytest.mark.parametrize("arguments", [["cache"], ["cache", "burn"], ["cache", "info", "--repair"]])
def test_a_wrong_command_line_is_exit_code_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: gradkern")


def test_looking_after_the_cache_loads_neither_numba_nor_cuda(folder: Path, kept: tuple[Path, Path]) -> None:
    code = (
        "import sys; before = {*sys.modules}; from gradkern.cli import main\n"
        "for action in 'info', 'verify', 'clear': assert main(['cache', action]) == 0\n"
        "print(*{each.partition('.')[0] for each in {*sys.modules} - before}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & {"numpy", "numba", "llvmlite", "cuda", "torch", "ml_dtypes"}
    assert "removed 2 kernels and 0 searches" in done.stdout
