"""Files on disk: nothing behind a link is removed, what is no file is not waited for, and no folder is needed."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from helpers.checkout import ROOT

from gradkern import cli
from gradkern.cli.doctor import check_cache, check_provider
from gradkern.cpu.compile import Kernel
from gradkern.cuda import cache as cubins
from gradkern.cuda import pack, packs
from gradkern.cuda.compile import Compiled
from gradkern.cuda.spec import KernelSpec, source_digest
from gradkern.search import store
from gradkern.system import cache_files

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links, FIFOs and owners are others there")

KEY = "0123456789abcdef" * 4
KERNEL = Compiled(b"machine code", 32, 0)
ROOT_USER = os.geteuid() == 0
NOBODY = 65534


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_files, "_warned", set())
    monkeypatch.setattr(packs, "PACKAGED", tmp_path / "packaged")
    packs.reset()
    cubins.keep(KEY, KERNEL)
    return tmp_path / "cache"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the user's own that has nothing to do with gradkern, with files that bear its names, too."""
    folder = tmp_path / "victim"
    (folder / "deeper").mkdir(parents=True)
    for name in ("thesis.txt", f"{KEY}.cubin", ".new-1", "deeper/notes.txt"):
        (folder / name).write_text("irreplaceable")
    return folder


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """Ends a test that waits."""

    def ring(*_: Any) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ran(*arguments: str) -> int:
    return cli.main([*arguments])


# --- what is removed -------------------------------------------------------------------------------------------------

NAMES = (".locks", f"{KEY[::-1]}.cubin", f"{KEY}.json", "sm_90.pack", ".new-x", "0123456789abcdef", "CACHEDIR.TAG")


@pytest.mark.parametrize("to", ["folder", "file", "nowhere"])
@pytest.mark.parametrize("name", NAMES)
def test_a_link_in_the_cache_is_not_followed(cache: Path, victim: Path, name: str, to: str) -> None:
    before = content(victim)
    link = cache / "cuda" / name
    link.unlink(missing_ok=True)
    if name == ".locks" and link.exists():
        link.rmdir()
    link.symlink_to({"folder": victim, "file": victim / "thesis.txt", "nowhere": victim / "none"}[to])
    for arguments in (["cache", "verify", "--repair"], ["cache", "clear"]):
        ran(*arguments)
        assert content(victim) == before
    cache_files.keep_newest("cuda", 0)
    assert content(victim) == before


def test_links_that_bear_gradkerns_names_are_removed_themselves(cache: Path, victim: Path) -> None:
    for name in NAMES[:-1]:
        (cache / "cuda" / name).symlink_to(victim)
    assert cache_files.clear("cuda") is None
    assert not (cache / "cuda").exists()


@pytest.mark.parametrize("depth", ["cache", "cache/cuda"])
def test_the_folders_may_be_links_that_their_user_has_made(cache: Path, tmp_path: Path, depth: str) -> None:
    """As of a home with little room, whose cache is elsewhere."""
    real = tmp_path / "elsewhere"
    (tmp_path / depth).rename(real)
    (tmp_path / depth).symlink_to(real)
    assert cubins.load(KEY) == KERNEL
    cubins.keep(KEY[::-1], KERNEL)
    assert len(cache_files.entries("cuda")) == 2
    assert ran("cache", "clear") == 0
    assert not list(real.rglob("*.cubin"))
    assert (tmp_path / depth).is_symlink()
    assert cubins.fetch(KEY, lambda: KERNEL) == KERNEL
    assert len(cache_files.entries("cuda")) == 1


@pytest.mark.skipif(not ROOT_USER, reason="only root can give links away")
def test_a_link_that_another_user_has_made_is_neither_read_nor_emptied(cache: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    (cache / "cuda").rename(real)
    (cache / "cuda").symlink_to(real)
    os.chown(cache / "cuda", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.warns(RuntimeWarning, match=rf"it belongs to another user \(uid {NOBODY}\)"):
        assert cubins.load(KEY) is None
    assert ran("cache", "clear") == 1
    assert ran("cache", "verify", "--repair") == 1
    assert (real / f"{KEY}.cubin").exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_nothing_is_removed_where_others_may_write(
    cache: Path, victim: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the remedy of `gradkern doctor` is another, after which the cache is used again."""
    folder = cache / "cuda"
    (folder / ".locks").symlink_to(victim)
    before = content(cache), content(victim)
    folder.chmod(mode)
    assert ran("cache", "clear") == 1
    assert f"{folder} is not removed: other users may write it" in capsys.readouterr().err
    with pytest.warns(RuntimeWarning, match="other users may write it"):
        assert ran("cache", "verify", "--repair") == 1
    cache_files.keep_newest("cuda", 0)
    assert (content(cache), content(victim)) == before
    (found,) = (each for each in check_cache() if each.facts["folder"] == str(folder))
    assert found.remedy is not None
    assert "cache clear" not in found.remedy
    subprocess.run(shlex.split(found.remedy), check=True)
    assert cubins.load(KEY) == KERNEL
    assert ran("cache", "clear") == 0
    assert content(victim) == before[1]


def test_locks_that_others_may_write_are_left(cache: Path) -> None:
    locks = cache / "cuda" / ".locks"
    locks.mkdir(exist_ok=True)
    (locks / "theirs").write_text("")
    locks.chmod(0o777)
    assert cache_files.clear("cuda") == ".locks: other users may write it"
    assert (locks / "theirs").exists()


@pytest.mark.parametrize("name", [".locks", f".locks/{KEY}"])
def test_no_lock_is_made_behind_a_link(cache: Path, victim: Path, name: str) -> None:
    before = content(victim)
    link = cache / "cuda" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim / "made" if "/" in name else victim)
    with cache_files.locked("cuda", KEY, 0) as alone:
        assert alone
    assert content(victim) == before


# --- what is read ----------------------------------------------------------------------------------------------------


def bind(path: Path) -> None:
    where = os.getcwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(where)


SPECIAL: dict[str, Callable[[Path], Any]] = {
    "FIFO": os.mkfifo,
    "socket": bind,
    "folder": os.mkdir,
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "link to a FIFO": lambda path: (os.mkfifo(path.parent.parent / "fifo"), path.symlink_to("../fifo")),
    "link to itself": lambda path: path.symlink_to(path.name),
    "device": lambda path: path.symlink_to("/dev/zero"),
}
MODULE = "gradkern.search.kernels"
SPEC = KernelSpec(f"{MODULE}:compare", ("a type",), "kernel", 4, 64, 1, (9, 0))


def fill(array: Any) -> None:
    array[:] = 1


def kernel_for_cpus() -> bool:
    array = np.zeros(2, np.float32)
    Kernel(fill)(numba.float32[::1])(array)
    return array.tolist() == [1, 1]


def pack_is_found() -> bool:
    packs.reset()
    return packs.find(SPEC) is not None


RESULT = store.SearchResult("ConvGrad dX", {"task": "a problem"}, (), (), True, 1.5)
READERS: dict[str, tuple[str, Callable[[], Path], Callable[[], bool]]] = {
    "cpu": ("a kernel of a CPU", lambda: cache_files.entries("cpu")[0], kernel_for_cpus),
    "cuda": ("a kernel", lambda: cache_files.path_of("cuda", KEY), lambda: cubins.fetch(KEY, lambda: KERNEL) == KERNEL),
    "packs": ("a pack", lambda: packs.installed_path((9, 0)), pack_is_found),
    "search": (
        "a search",
        lambda: store.path_of(RESULT),
        lambda: store.load(store.key_of(RESULT.conditions)) is not None,
    ),
}


@pytest.fixture
def filled(cache: Path) -> Path:
    """One of each."""
    about = pack.About("1.0", (9, 0), source_digest(MODULE), (MODULE,), ())
    cache_files.write(packs.installed_path((9, 0)), pack.build(about, {SPEC.digest: KERNEL}))
    store.save(RESULT)
    assert kernel_for_cpus()
    return cache


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_in_the_place_of_one_is_passed_by(filled: Path, name: str, kind: str) -> None:
    """Kernels are made anew, and take its place unless it is a folder; there is no pack and no search."""
    _, path_of, use = READERS[name]
    path = path_of()
    assert use()
    path.unlink()
    SPECIAL[kind](path)
    with pytest.raises(OSError, match=r"symbolic|regular|directory|Is a|No such device"):
        cache_files.read(path)
    assert len(list(store.newest("ConvGrad", 9))) == (name != "search")
    if name == "packs":
        (found,) = packs.found()
        assert found.fault is not None
    assert ran("cache", "verify") == 1
    assert ran("cache", "info") == 0
    stays = kind == "folder" and name in ("cpu", "cuda")
    with pytest.warns(RuntimeWarning, match="cannot be written: Is a dir") if stays else contextlib.nullcontext():
        assert use() == (name in ("cpu", "cuda"))
    if name in ("cpu", "cuda") and not stays:
        assert path.is_file()
        assert not path.is_symlink()
    assert ran("cache", "clear") == 0


@pytest.mark.parametrize("name", READERS)
def test_a_folder_that_is_not_trusted_is_looked_at_before_what_is_in_it(filled: Path, name: str) -> None:
    _, path_of, use = READERS[name]
    path = path_of()
    path.unlink()
    os.mkfifo(path)
    path.parent.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="is not used: other users may write it"):
        assert use() == (name in ("cpu", "cuda"))
    if name != "packs":
        with pytest.raises(PermissionError, match="other users may write it"):
            cache_files.read(path)


@pytest.mark.parametrize("place", ["CACHEDIR.TAG", ".locks", f".locks/{KEY}"])
def test_a_fifo_in_any_other_place_hangs_nobody(filled: Path, place: str) -> None:
    path = filled / "cuda" / place
    cache_files.path_of("cuda", KEY).unlink()
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    with contextlib.suppress(RuntimeWarning):
        assert cubins.fetch(KEY, lambda: KERNEL) == KERNEL
    with cache_files.locked("cuda", KEY, 0) as alone:
        assert alone
    assert ran("cache", "info") == 0
    assert ran("cache", "verify") == 0


@pytest.mark.parametrize("command", [["cache", "import"], ["pack", "install"]])
@pytest.mark.parametrize("kind", ["FIFO", "folder", "device"])
def test_a_command_refuses_what_is_no_file(
    cache: Path, tmp_path: Path, command: list[str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    SPECIAL[kind](tmp_path / "given")
    assert ran(*command, str(tmp_path / "given")) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "it is no regular file" in said[0] or "Is a directory" in said[0]


def test_a_file_that_a_user_names_may_be_a_link(filled: Path, tmp_path: Path) -> None:
    (tmp_path / "found").symlink_to(packs.installed_path((9, 0)))
    assert ran("pack", "install", str(tmp_path / "found")) == 0
    assert ran("cache", "export", str(tmp_path / "searches")) == 0
    (tmp_path / "link").symlink_to(tmp_path / "searches")
    assert ran("cache", "import", str(tmp_path / "link")) == 0


def test_a_named_link_is_followed_and_a_device_is_not_replaced(filled: Path, tmp_path: Path) -> None:
    """As /dev/null would be, where root names it."""
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "searches")
    assert ran("cache", "export", str(link)) == 0
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert ran("cache", "export", str(pipe)) == 0
        assert os.read(reader, 1 << 16) == (tmp_path / "searches").read_bytes()
    finally:
        os.close(reader)
    assert link.is_symlink()
    assert pipe.is_fifo()
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".new")) == []


# --- no folder -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def closed(folder: Path) -> Iterator[None]:
    """A folder that this process may not look into, as another user's home. Root is somebody else meanwhile."""
    folder.mkdir()
    folder.chmod(0o700 if ROOT_USER else 0)
    if ROOT_USER:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if ROOT_USER:
            os.seteuid(0)
        folder.chmod(0o700)


def no_account(*_: Any) -> Any:
    raise KeyError("no such user")


WAYS = {
    "a long name": "File name too long",
    "a closed folder": "Permission denied",
    "a closed home": "Permission denied",
    "no home": "the home folder is not known",
    "a home of nobody": "the home folder is not known",
    "the home of no account": "the home folder is not known",
    "a gone working folder": "No such file or directory",
    "a file": "File exists|Not a directory",
    "a loop": "File exists|Too many levels",
}


@pytest.fixture(params=WAYS)
def no_folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """No folder can be had for what is cached, in one way after another: why."""
    assert kernel_for_cpus()  # nothing has to be imported any more
    monkeypatch.setattr(cache_files, "_warned", set())
    way = request.param
    for name in ("HOME", "XDG_CACHE_HOME", "GRADKERN_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    named = {
        "a long name": str(tmp_path / ("a" * 300)),
        "a closed folder": str(tmp_path / "closed" / "cache"),
        "a home of nobody": "~nobody-of-this-name/cache",
        "the home of no account": "~/cache",
        "a gone working folder": "cache",
        "a file": str(tmp_path / "file"),
        "a loop": str(tmp_path / "loop"),
    }.get(way)
    if named is not None:
        monkeypatch.setenv("GRADKERN_CACHE_DIR", named)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with contextlib.ExitStack() as stack:
        if "closed" in way:
            monkeypatch.setenv("HOME", str(tmp_path / "closed"))
            stack.enter_context(closed(tmp_path / "closed"))
        if "no" in way.split():
            monkeypatch.setattr(pwd, "getpwuid", no_account)
        if "gone" in way:
            where = os.getcwd()
            (tmp_path / "gone").mkdir()
            os.chdir(tmp_path / "gone")
            (tmp_path / "gone").rmdir()
            stack.callback(os.chdir, where)
        yield way, WAYS[way]


def test_without_a_folder_kernels_are_compiled_with_one_warning(
    no_folder: tuple[str, str], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    before = None if "closed" in no_folder[0] else sorted(tmp_path.iterdir())
    for _ in range(2):
        assert kernel_for_cpus()
        assert cubins.fetch(KEY, lambda: KERNEL) == KERNEL
        store.save(RESULT)
        assert store.load(store.key_of(RESULT.conditions)) is None
        assert not pack_is_found()
        assert not cubins.has(KEY)
    (warning,) = recwarn.list
    assert warning.category is RuntimeWarning
    assert "gradkern doctor" in str(warning.message)
    assert any(each in str(warning.message) for each in no_folder[1].split("|"))
    assert before is None or sorted(tmp_path.iterdir()) == before
    assert not Path("~").exists()


@pytest.mark.filterwarnings("ignore:gradkern. .* cannot be written:RuntimeWarning")
def test_without_a_folder_every_command_works(no_folder: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["cache", "info"], ["cache", "info", "--json"], ["cache", "verify"], ["pack", "info"]):
        assert ran(*command) == 0, command
    assert "cannot be written" in capsys.readouterr().out
    assert ran("explain", "BiasGeluGrad_dX", "--provider", "cpu") == 0
    ran("cache", "clear")
    (found,) = check_cache()
    assert (found.status, found.remedy) == ("problem", "export GRADKERN_CACHE_DIR=FOLDER")
    assert any(each in found.text for each in no_folder[1].split("|"))
    assert check_provider("cpu").status == "fine"
    assert "Traceback" not in capsys.readouterr().err


CALL = """
import numpy as np, pwd, sys
sys.path[:0] = {path!r},

def no_account(*_):
    raise KeyError("no such user")

pwd.getpwuid = no_account
import gradkern
x = np.ones((4, 6), np.float32)
print(gradkern.run("BiasGeluGrad_dX", x, x, np.zeros(6, np.float32)).dX[0, 0])
"""


def test_a_process_without_home_account_and_working_folder_computes_its_first_call(tmp_path: Path) -> None:
    """From the first import on."""
    gone = tmp_path / "gone"
    text = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})\n{CALL.format(path=str(ROOT))}"
    gone.mkdir()
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=90, env={}, check=False)
    assert done.stdout.startswith("1.08331"), done.stderr
    assert done.stderr.count("RuntimeWarning") == 1
