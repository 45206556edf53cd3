"""`gradkern cache`: what is kept is counted, checked and removed, and nothing else is."""

import errno
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
from gradkern.cpu.compile import Kernel
from gradkern.cuda import cache as cubins
from gradkern.cuda import pack
from gradkern.cuda.compile import Compiled
from gradkern.cuda.spec import source_digest
from gradkern.search import store
from gradkern.system import cache_files

Shown = Callable[..., tuple[int, str, str]]
KEY = "0123456789abcdef" * 4
NO_SEARCH = "  packs  0 packs, 0 bytes\n  search 0 searches, 0 bytes\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


@pytest.fixture
def show(folder: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Run `gradkern cache` with these arguments: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["cache", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def fill(array):
    array[:] = 1


@pytest.fixture
def kept(folder: Path) -> tuple[Path, Path]:
    """One kernel for CPUs and one for GPUs, kept as the providers keep them."""
    Kernel(fill)(numba.float32[::1])
    cubins.fetch(KEY, lambda: Compiled(b"machine code", 32, 0))
    (entry,) = cache_files.entries("cpu")
    return entry, folder / "cuda" / f"{KEY}.cubin"


def size(*paths: Path) -> int:
    return sum(path.stat().st_size for path in paths)


def as_json(show: Shown, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = show(*arguments, "--json")
    document = json.loads(out)
    assert (document.pop("schema"), document.pop("gradkern")) == (3, gradkern.__version__)
    return code, document


# --- info ------------------------------------------------------------------------------------------------------------


def test_an_empty_cache_has_no_kernels(show: Shown, folder: Path) -> None:
    assert show("info") == (0, f"{folder}\n  cpu    0 kernels, 0 bytes\n  cuda   0 kernels, 0 bytes\n{NO_SEARCH}", "")


def test_kernels_of_both_providers_are_counted(show: Shown, folder: Path, kept: tuple[Path, Path]) -> None:
    cpu, cuda = map(size, kept)
    assert (
        show("info")[1] == f"{folder}\n  cpu    1 kernel, {cpu:,} bytes\n  cuda   1 kernel, {cuda:,} bytes\n{NO_SEARCH}"
    )
    assert as_json(show, "info") == (
        0,
        {
            "folder": str(folder),
            "writable": True,
            "providers": {
                "cpu": {"kernels": 1, "bytes": cpu, "unused": None},
                "cuda": {"kernels": 1, "bytes": cuda, "unused": None},
            },
            "packs": {"kept": 0, "bytes": 0, "unused": None},
            "searches": {"kept": 0, "bytes": 0, "unused": None},
        },
    )


def test_a_folder_that_is_not_used_is_said_to_be(show: Shown, folder: Path, kept: tuple[Path, Path]) -> None:
    (folder / "search").mkdir()
    (folder / "search" / "note.txt").write_text("somebody else's")
    kept[1].parent.chmod(0o777)
    lines = show("info")[1].splitlines()
    assert lines[2].endswith(" bytes (not used: other users may write it)")
    assert lines[4].endswith(" (not used: it is not gradkern's: it has 'note.txt' and no CACHEDIR.TAG of gradkern)")
    found = as_json(show, "info")[1]
    assert found["providers"]["cuda"]["unused"] == "other users may write it"
    assert found["searches"]["unused"].startswith("it is not gradkern's")


def test_a_folder_that_cannot_be_written_is_said_to_keep_nothing(show: Shown, folder: Path) -> None:
    folder.write_text("a file, not a folder")
    assert show("info")[1].splitlines()[0] == f"{folder} (cannot be written: File exists; nothing is kept)"
    assert as_json(show, "info")[1]["writable"] is False


# --- verify ----------------------------------------------------------------------------------------------------------

WHOLE = "cpu    {} checked\ncuda   {} checked\npacks  0 packs checked\nsearch 0 searches checked\n"


def test_sound_kernels_pass(show: Shown, kept: tuple[Path, Path]) -> None:
    assert show("verify") == (0, WHOLE.format("1 kernel", "1 kernel"), "")


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
@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_kernel_is_found(
    show: Shown, kept: tuple[Path, Path], number: int, change: Callable[[bytes], bytes], reason: str
) -> None:
    path = kept[number]
    path.write_bytes(change(path.read_bytes()))
    code, out, _ = show("verify")
    assert code == 1
    assert f"bad    {path}: {reason}\n" in out
    assert out.endswith("remove the bad ones: gradkern cache verify --repair\n")


@pytest.mark.parametrize(("number", "name"), [(0, f"fill-{KEY}.kernel"), (1, f"{KEY[::-1]}.cubin")])
def test_a_kernel_under_another_name_is_found(show: Shown, kept: tuple[Path, Path], number: int, name: str) -> None:
    other = kept[number].with_name(name)
    kept[number].rename(other)
    assert f"bad    {other}: it holds another kernel\n" in show("verify")[1]


def test_what_cannot_be_read_is_bad_in_the_systems_words(show: Shown, kept: tuple[Path, Path]) -> None:
    kept[1].unlink()
    kept[1].mkdir()
    assert f"bad    {kept[1]}: it cannot be read: Is a directory\n" in show("verify")[1]


def test_repair_removes_the_bad_ones_and_leaves_the_others(show: Shown, kept: tuple[Path, Path]) -> None:
    kept[0].write_bytes(b"")
    code, found = as_json(show, "verify", "--repair")
    assert (code, found["checked"]) == (0, {"cpu": 1, "cuda": 1, "packs": 0, "search": 0})
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
    for path in kept:
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
    taken = size(*kept)
    assert show("clear") == (0, f"removed 2 kernels and 0 searches, {taken:,} bytes, from {folder}\n", "")
    assert list(folder.iterdir()) == [note]
    assert as_json(show, "clear") == (
        0,
        {"folder": str(folder), "kernels": 0, "searches": 0, "bytes": 0, "packs": 0, "left": {}},
    )


def test_a_dry_run_says_what_it_would_remove_and_removes_nothing(
    show: Shown, folder: Path, kept: tuple[Path, Path]
) -> None:
    what = f"2 kernels and 0 searches, {size(*kept):,} bytes, from {folder}"
    assert show("clear", "--dry-run") == (0, f"would remove {what}\n", "")
    assert as_json(show, "clear", "--dry-run")[1]["kernels"] == 2
    assert all(path.exists() for path in kept)


@pytest.mark.parametrize(("options", "answer", "gone"), [([], "n", False), ([], "y", True), (["--yes"], None, True)])
def test_on_a_terminal_it_says_what_it_removes_and_asks(
    show: Shown, kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, options: list[str], answer: str, gone: bool
) -> None:
    asked: list[str] = []
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    code, out, _ = show("clear", *options)
    assert (code, len(asked)) == (0 if gone else 1, 0 if options else 1)
    assert ("This removes 2 kernels and 0 searches, " in out) == (not options)
    assert all(path.exists() != gone for path in kept)


def test_what_cannot_be_removed_is_said_and_exit_code_one(
    show: Shown, kept: tuple[Path, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", read_only)
    code, out, err = show("clear")
    assert (code, out) == (1, f"removed 0 kernels and 0 searches, 0 bytes, from {folder}\n")
    first, second = err.splitlines()
    assert first.startswith(f"{folder / 'cpu'} is not removed: Read-only file system: {folder / 'cpu'}/")
    assert second.startswith(f"{folder / 'cuda'} is not removed: Read-only file system: {folder / 'cuda'}/")
    assert as_json(show, "clear")[1]["left"].keys() == {str(folder / "cpu"), str(folder / "cuda")}
    assert all(path.exists() for path in kept)


def test_folders_of_others_under_the_named_one_are_left_as_they_are(show: Shown, folder: Path) -> None:
    theirs = [
        folder / "cpu" / "project" / "source.c",
        folder / "cpu" / "0123456789abcdef" / "data",  # a name that gradkern gives, too
        folder / "cuda" / f"{KEY}.cubin",
        folder / "cuda" / "Makefile",
        folder / "search" / "results" / f"{KEY}.json",
    ]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("somebody else's")
    code, out, err = show("clear")
    assert (code, out) == (1, f"removed 0 kernels and 0 searches, 0 bytes, from {folder}\n")
    assert f"{folder / 'cpu'} is not removed: it is not gradkern's: it has 'project' and no CACHEDIR.TAG" in err
    assert all(path.read_text() == "somebody else's" for path in theirs)
    with pytest.warns(RuntimeWarning, match="is not used: it is not gradkern's"):
        Kernel(fill)(numba.float32[::1])
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == sorted(theirs)


def test_files_of_others_in_gradkerns_own_folder_are_left(show: Shown, folder: Path, kept: tuple[Path, Path]) -> None:
    note = folder / "cpu" / "notes" / "note.txt"
    note.parent.mkdir()
    note.write_text("somebody else's")
    half = folder / "cuda" / ".new-abc_1"
    half.write_bytes(b"what a killed process left")
    assert show("clear")[0] == 0
    assert {path for path in folder.rglob("*") if path.is_file()} == {note, folder / "cpu" / "CACHEDIR.TAG"}


def test_a_cache_of_before_there_were_tags_is_gradkerns(show: Shown, folder: Path, kept: tuple[Path, Path]) -> None:
    (folder / "cuda" / "CACHEDIR.TAG").unlink()
    older = folder / "cpu" / "0123456789abcdef" / "rows-0" / "rows.nbi"
    older.parent.mkdir(parents=True)
    older.write_bytes(b"")
    (folder / "cpu" / "CACHEDIR.TAG").unlink()
    assert "not used" not in show("info")[1]
    assert cubins.fetch(KEY[::-1], lambda: Compiled(b"more", 32, 0)).cubin == b"more"
    assert (folder / "cuda" / "CACHEDIR.TAG").exists()
    assert show("clear")[1].startswith("removed 3 kernels and 0 searches, ")
    assert list(folder.rglob("*.cubin")) == list(folder.rglob("*.kernel")) == []
    assert older.exists()


# --- searches --------------------------------------------------------------------------------------------------------


@pytest.fixture
def search(folder: Path) -> Path:
    """One search, kept as searches are."""
    store.save(store.SearchResult("ConvGrad dX", {"task": "a problem"}, (), (), True, 1.5))
    (path,) = cache_files.entries("search")
    return path


def test_searches_are_counted_checked_and_removed(show: Shown, folder: Path, search: Path) -> None:
    assert f"  search 1 search, {size(search):,} bytes\n" in show("info")[1]
    assert "search 1 search checked" in show("verify")[1]
    assert show("clear")[1].startswith("removed 0 kernels and 1 search, ")
    assert not search.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "its digest does not fit its content"),
        (lambda path: path.write_bytes(b""), "it is no file of this format"),
        (lambda path: path.rename(path.with_name(f"{KEY}.json")), "it answers another question"),
    ],
)
def test_a_damaged_search_is_found(
    show: Shown, folder: Path, search: Path, change: Callable[[Path], Any], reason: str
) -> None:
    change(search)
    (path,) = cache_files.entries("search")
    code, out, _ = show("verify")
    assert (code, f"bad    {path}: {reason}\n" in out) == (1, True)
    assert show("verify", "--repair")[0] == 0
    assert not path.exists()


# --- packs -----------------------------------------------------------------------------------------------------------


def test_a_pack_is_counted_checked_and_removed(show: Shown, folder: Path) -> None:
    modules = ("gradkern.search.kernels",)
    about = pack.About("1.0", (9, 0), source_digest(*modules), modules, ())
    path = folder / "packs" / "sm_90.pack"
    cache_files.write(path, pack.build(about, {KEY: Compiled(b"machine code", 32, 0)}))
    assert f"  packs  1 pack, {size(path):,} bytes\n" in show("info")[1]
    assert show("verify")[0] == 0
    removed = show("clear")[1]
    assert "1 pack, " in removed
    assert removed.endswith(f" bytes, from {folder}\n")
    assert not path.exists()
    cache_files.write(path, pack.build(about, {KEY: Compiled(b"machine code", 32, 0)})[:-1] + b"!")
    assert f"bad    {path}: the digest of kernel {KEY[:16]} does not fit its content\n" in show("verify")[1]
    assert show("verify", "--repair")[0] == 0
    assert not path.exists()


# --- the command -----------------------------------------------------------------------------------------------------


def test_without_the_variable_the_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRADKERN_CACHE_DIR", raising=False)
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
