"""Kernels compiled in other processes: the same code, and whatever happens to those processes, no call fails for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from helpers.checkout import ROOT

from gradkern.cuda import cache, compile_ahead, packs, workers
from gradkern.cuda import device as devices
from gradkern.cuda.compile import Compiled
from gradkern.cuda.device import Device, get_device
from gradkern.cuda.launch import kernel_of
from gradkern.cuda.spec import KernelSpec
from gradkern.errors import ProviderError

CAPABILITY = (9, 0)


def fill(dtype: str) -> KernelSpec:
    """The quickest kernel there is to compile."""
    return KernelSpec("gradkern.search.kernels:fill", (dtype,), f"fill_{dtype}", 3, 256, 1, CAPABILITY)


SPECS = [fill("float32"), fill("float16"), fill("bfloat16")]

FAKE = """
import os, sys, time
sys.path[:0] = [{root!r}]
from gradkern.cuda import workers
from gradkern.cuda.compile import Compiled
from gradkern.cuda.spec import KernelSpec
def compiled(spec):
    {body}
    return Compiled(spec.name.encode(), 1, 0, spec.name)
KernelSpec.compile = compiled
{before}
workers.main()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(workers, "_warned", False)
    monkeypatch.setattr(workers, "available", lambda: True)
    packs.reset()
    yield tmp_path / "cuda"
    workers.close_idle()
    cache._held.clear()


def fake(monkeypatch: pytest.MonkeyPatch, body: str = "pass", before: str = "") -> None:
    """In place of the workers, processes that do this for every kernel."""
    workers.close_idle()
    code = FAKE.format(root=str(ROOT), body=body, before=before)
    monkeypatch.setattr(workers, "_command", lambda: [sys.executable, "-c", code])


def key(spec: KernelSpec) -> str:
    return cache.key_of(spec.module, spec.description, spec.capability)


def made(jobs: int = 2) -> dict[str, Compiled | None]:
    return {spec.name: kernel for spec, kernel in workers.compiled(SPECS, jobs)}


ALL = {spec.name: Compiled(spec.name.encode(), 1, 0, spec.name) for spec in SPECS}


@pytest.mark.thorough
def test_a_worker_compiles_what_this_process_would_and_the_cache_has_it(folder: Path) -> None:
    assert compile_ahead.compile_ahead(SPECS[:2]) == 2
    kept = cache.load(key(SPECS[0]))
    here = SPECS[0].compile()
    assert kept is not None
    assert (kept.cubin, kept.registers, kept.spilled, kept.name) == (here.cubin, here.registers, 0, "fill_float32")
    assert compile_ahead.compile_ahead(SPECS[:2]) == 0


def test_every_kernel_comes_once_whatever_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    assert made(jobs=1) == made(jobs=3) == made(jobs=99) == ALL
    assert not [each for each in workers._idle if not each.alive]


def test_what_libraries_print_is_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, "os.write(1, b'compiled')", "print('a banner', flush=True)")
    assert made() == ALL


def test_one_thread_compiles_a_kernel_for_all_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker has the kernel's IR after the first."""
    fake(monkeypatch)
    both, found = threading.Barrier(2, timeout=60), dict[int, list[KernelSpec]]()

    def make(worker: workers.Worker, spec: KernelSpec) -> Compiled:
        thread = threading.get_ident()
        if thread not in found:
            found[thread] = []
            both.wait()
        found[thread].append(spec)
        return ALL[spec.name]

    capabilities = [(8, 0), (9, 0), (12, 0)]
    specs = [spec.on(capability) for spec in SPECS for capability in capabilities]
    done = [spec for spec, kernel in workers.compiled(specs, 2, make) if kernel]
    assert {*done} == {*specs}
    assert len(done) == len(specs)
    assert len(found) == 2
    for of_one in found.values():
        assert [spec.capability for spec in of_one] == capabilities * (len(of_one) // 3)


def test_a_worker_that_may_be_about_to_end_gets_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    made(jobs=1)
    (first,) = workers._idle
    made(jobs=1)
    assert workers._idle == [first]
    first.idle_since -= workers._KEPT
    assert made(jobs=1) == ALL
    assert first not in workers._idle
    assert not first.alive


def test_a_worker_sees_no_gpu_and_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "return Compiled(f'{os.getpid()} {os.environ[\"CUDA_VISIBLE_DEVICES\"]!r}'.encode(), 1, 0)"
    fake(monkeypatch, body)
    seen = {each.cubin for _ in range(2) for each in made(jobs=1).values() if each}
    assert len(seen) == 1
    assert seen.pop().endswith(b" ''")
    monkeypatch.setattr(workers, "_RENEWED", 1)  # a compiler's memory grows
    assert len({each.cubin for each in made(jobs=1).values() if each}) == len(SPECS)


@pytest.mark.parametrize(
    ("body", "before", "says"),
    [
        ("os.kill(os.getpid(), 9)", "", r"has ended \(exit code -9\)"),
        ("os._exit(3)", "", r"has ended \(exit code 3\)"),
        ("raise RuntimeError('no such type')", "", "has failed: RuntimeError: no such type"),
        ("time.sleep(60)", "", "does not answer"),
        ("pass", "workers.HELLO = 'another version'", "is another program"),
        ("pass", "sys.exit(1)", r"has ended \(exit code 1\)"),
    ],
    ids=["killed", "ended", "failed", "hung", "another program", "never there"],
)
def test_what_a_worker_cannot_make_is_left_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, folder: Path, body: str, before: str, says: str
) -> None:
    fake(monkeypatch, body, before)
    monkeypatch.setattr(workers, "_PATIENCE", 0.5)
    with pytest.warns(RuntimeWarning, match=f"a process that compiles kernels {says}") as caught:
        assert compile_ahead.compile_ahead(SPECS) == 0
    assert len(caught) == 1
    assert not list(folder.glob("*.cubin"))
    assert not list(folder.glob(".new*"))


def test_one_that_dies_costs_no_other_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, "if spec.name == 'fill_float16': os._exit(1)")
    with pytest.warns(RuntimeWarning, match="exit code 1"):
        assert made(jobs=1) == {**ALL, "fill_float16": None}


def test_what_cannot_be_told_to_a_worker_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    odd = KernelSpec("gradkern.search.kernels:fill", (lambda: None,), "odd", 3, 256, 1, CAPABILITY)
    with pytest.warns(RuntimeWarning, match="cannot be told of odd"):
        found = {spec.name: kernel for spec, kernel in workers.compiled([odd, *SPECS], 1)}
    assert found == {**ALL, "odd": None}


def test_a_warning_that_is_an_error_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, "os._exit(1)")
    with pytest.raises(RuntimeWarning, match="exit code 1"):
        list(workers.compiled(SPECS, 2))


def test_an_interrupt_ends_the_workers_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(monkeypatch, f"open({str(tmp_path / 'began')!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(60)")

    def interrupt() -> None:
        while not (tmp_path / "began").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(workers.compiled(SPECS, 2))
    assert time.monotonic() - start < 30
    assert all(not alive(int(each)) for each in (tmp_path / "began").read_text().split())
    assert not workers._idle


def test_a_worker_ends_when_its_process_is_killed_in_the_middle(tmp_path: Path) -> None:
    code = FAKE.format(
        root=str(ROOT),
        body=f"open({str(tmp_path / 'began')!r}, 'w').write(str(os.getpid())); time.sleep(60)",
        before="",
    )
    parent = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}]
from gradkern.cuda import workers
from gradkern.cuda.spec import KernelSpec
workers._command = lambda: [sys.executable, "-c", {code!r}]
list(workers.compiled([KernelSpec("gradkern.search.kernels:fill", ("float32",), "fill", 3, 256, 1, (9, 0))], 1))
"""
    process = subprocess.Popen([sys.executable, "-c", parent])
    worker = int(waited(tmp_path / "began"))
    assert alive(worker)
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while alive(worker) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(worker)


def waited(path: Path) -> str:
    """What is in a file, once there is something."""
    end = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    return path.read_text()


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended, and waits for its parent to hear of it, does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it looks into /proc")
def test_the_files_that_tests_of_processes_look_into_are_there() -> None:
    assert alive(os.getpid())


def test_a_forked_child_has_workers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    assert made(jobs=1) == ALL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        child = os.fork()
    if child == 0:
        os._exit(0 if not workers._idle and made(jobs=1) == ALL else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert made(jobs=1) == ALL


def test_of_two_processes_one_compiles_and_the_other_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    """Every compilation leaves a line: there are as many as kernels."""
    body = f"open({str(tmp_path / 'log')!r}, 'a').write(spec.name + chr(10)); time.sleep(0.3)"
    code = FAKE.format(root=str(ROOT), body=body, before="")
    process = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}]
from gradkern.cuda import cache, compile_ahead, workers
from gradkern.cuda.spec import KernelSpec
workers._command = lambda: [sys.executable, "-c", {code!r}]
specs = [KernelSpec("gradkern.search.kernels:fill", (each,), "fill_" + each, 3, 256, 1, (9, 0)) for each in "abcd"]
compile_ahead.compile_ahead(specs)
assert all(cache.load(compile_ahead._key(each)).cubin == each.name.encode() for each in specs)
"""
    both = [subprocess.Popen([sys.executable, "-c", process]) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert sorted((tmp_path / "log").read_text().split()) == ["fill_a", "fill_b", "fill_c", "fill_d"]


def test_where_nothing_can_be_written_what_was_compiled_ahead_is_held(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    fake(monkeypatch)
    folder.write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="cannot be written: File exists; what is compiled or found is kept"):
        assert compile_ahead.compile_ahead(SPECS) == 3
    assert cache.fetch(key(SPECS[0]), SPECS[0].compile) == ALL["fill_float32"]


def test_one_kernel_alone_and_none_start_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_command", lambda: pytest.fail("a worker is started"))
    assert compile_ahead.compile_ahead(SPECS[:1]) == compile_ahead.compile_ahead([]) == 0


def test_what_plans_need_is_compiled_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that fails is left to fail in earnest."""
    fake(monkeypatch)
    monkeypatch.setattr(devices, "_opened", lambda index: Device(index, CAPABILITY, 132, 232448, 1))

    def plan(dtype: str) -> None:
        spec = fill(dtype)
        kernel_of(get_device(0), spec.builder, dtype, name=spec.name, arguments=3, threads=256)

    def failing() -> None:
        raise ProviderError("this call is refused")

    shown: list[int] = []

    def show(items: Any, total: int) -> Any:
        shown.append(total)
        return items

    plans = [failing, *(partial(plan, dtype) for dtype in ("float32", "float16", "float32"))]
    assert compile_ahead.for_plans(plans, "cuda:0", show) == 2
    assert shown == [2]
    assert cache.load(key(SPECS[0])) == ALL["fill_float32"]
    assert compile_ahead.for_plans(plans, "cuda:0", show) == 0


@pytest.mark.parametrize(
    ("executable", "frozen", "can"),
    [
        ("/usr/bin/python3.11", False, True),
        ("/app/program", False, False),
        ("", False, False),
        ("/app/python", True, False),
    ],
)
def test_no_worker_is_started_by_a_program_that_is_no_interpreter(
    monkeypatch: pytest.MonkeyPatch, executable: str, frozen: bool, can: bool
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    assert workers.available() is can


def test_the_processes_of_one_machine_share_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(Path, "read_text", lambda _: "max 100000")
    assert workers.cores() == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert workers.cores() == 2
    monkeypatch.setattr(Path, "read_text", lambda _: "150000 100000")
    assert workers.cores() == 1
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert workers.cores() == 2


def test_a_worker_imports_nothing_of_the_working_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user's own random.py or numba.py."""
    for name in ("queue", "signal", "numba"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    odd = KernelSpec("gradkern.search.no_such_module:fill", ("float32",), "odd", 3, 256, 1, CAPABILITY)
    with pytest.warns(RuntimeWarning, match="has failed: ModuleNotFoundError"):  # so far it has come
        assert [kernel for _, kernel in workers.compiled([odd], 1)] == [None]
