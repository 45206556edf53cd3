"""What a hostile trial would do, at random moments and with random bits; every test is bounded in time.

Run with --long. The seeds are drawn anew in every run and shown where a test fails.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradkern
from gradkern.contract.schema import shape_of
from gradkern.cpu import cache as cached
from gradkern.system import cache_files

pytestmark = pytest.mark.slow

# What one run tries; tools/docs/caches.md quotes these numbers.
DAMAGED_FILES = 3000
DAMAGED_CACHES = 8
KILLS = 8
INTERRUPTS = 8
FORKS = 4
THREADS = 8
CALLS = 25_000
HOSTILE_CALLS = 1000
EVERY_CHECK: Any = list(HealthCheck)

WORK = """
import sys
import numpy as np
import gradkern
X, row = np.linspace(-3, 3, 600, dtype=np.float32).reshape(20, 30), np.ones(30, np.float32)
def call():
    return gradkern.run("BiasGeluGrad_dX", X, X, row, outputs=("dX", "dB"))
"""
DONE = WORK + "print(call().dX.tobytes().hex(), call().dB.tobytes().hex())"


@pytest.fixture
def seed() -> int:
    return random.SystemRandom().randrange(2**32)


@pytest.fixture
def draw(seed: int) -> random.Random:
    print(f"seed {seed}")  # shown where the test fails
    return random.Random(seed)


def environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "GRADKERN_CACHE_DIR": str(cache)}


def start(code: str, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.Popen(command, env=environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(code: str, cache: Path) -> str:
    """What a process prints, which must end well."""
    process = start(code, cache)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, f"{process.returncode}: {err[-3000:]}"
    return out


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache with the kernels of WORK in it, and what they compute."""
    cache = tmp_path_factory.mktemp("warm") / "cache"
    return cache, ended(DONE, cache)


def damage(data: bytes, draw: random.Random) -> bytes:
    kind = draw.randrange(4)
    place = draw.randrange(len(data))
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + bytes(draw.randrange(1, 200)) + data[place:]
    changed = bytearray(data)
    for _ in range(draw.randrange(1, 4) if kind == 2 else 100):
        changed[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    return bytes(changed)


def test_no_damaged_file_is_loaded(warm: tuple[Path, str], tmp_path: Path, draw: random.Random) -> None:
    (sound, *_) = sorted((warm[0] / "cpu").glob("*.kernel"))
    data, path = sound.read_bytes(), tmp_path / sound.name
    for _ in range(DAMAGED_FILES):
        changed = damage(data, draw)
        if changed != data:
            path.write_bytes(changed)
            path.chmod(0o600)
            with pytest.raises(ValueError, match="it "):
                cached.read(path)


def test_a_process_with_a_damaged_cache_computes_the_same(
    warm: tuple[Path, str], tmp_path: Path, draw: random.Random
) -> None:
    for number in range(DAMAGED_CACHES):
        cache = tmp_path / str(number)
        shutil.copytree(warm[0], cache)
        for path in (cache / "cpu").glob("*.kernel"):
            if draw.random() < 0.7:
                path.write_bytes(damage(path.read_bytes(), draw))
        assert ended(DONE, cache) == warm[1]
        assert ended(DONE, cache) == warm[1]  # from what the first has repaired


def swap(path: Path, victim: Path, draw: random.Random) -> None:
    """Put something else in the place of what is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind = draw.randrange(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    else:
        path.symlink_to(draw.choice([victim, victim / "thesis.txt", Path("/dev/zero"), victim / "fifo", victim / "no"]))


def test_whatever_is_in_the_place_of_a_cached_file_hangs_nobody_and_nothing_behind_a_link_is_lost(
    warm: tuple[Path, str], tmp_path: Path, draw: random.Random
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    os.mkfifo(victim / "fifo")
    names = ["thesis.txt", *os.listdir(warm[0] / "cpu")]
    for name in set(names) - {".locks"}:
        (victim / name).write_text("irreplaceable")
    for number in range(DAMAGED_CACHES):
        cache = tmp_path / str(number)
        shutil.copytree(warm[0], cache)
        for path in sorted((cache / "cpu").iterdir()):
            if draw.random() < 0.5:
                swap(path, victim, draw)
        if draw.random() < 0.3:
            (cache / "cpu").chmod(draw.choice([0o777, 0o1777, 0o770]))
        assert ended(DONE, cache) == warm[1]
        for arguments in (["info"], ["verify"], ["verify", "--repair"], ["clear"]):
            command = [sys.executable, "-m", "gradkern", "cache", *arguments]
            done = subprocess.run(
                command, env=environment(cache), capture_output=True, text=True, timeout=100, check=False
            )
            assert "Traceback" not in done.stderr
        assert {path.name: path.read_text() for path in victim.iterdir() if path.is_file()} == dict.fromkeys(
            set(names) - {".locks"}, "irreplaceable"
        )


def test_a_killed_process_leaves_a_sound_cache(warm: tuple[Path, str], tmp_path: Path, draw: random.Random) -> None:
    cache = tmp_path / "cache"
    for _ in range(KILLS):
        process = start(DONE, cache)
        time.sleep(draw.uniform(0, 6))
        process.send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM]))
        process.communicate(timeout=100)
        for path in (cache / "cpu").glob("*.kernel"):
            cached.read(path)
    assert ended(DONE, cache) == warm[1]


INTERRUPTED = (
    WORK
    + """
import signal
print("ready", flush=True)
times = 0
while times < 20:
    try:
        call()
        times += 1
        if times == 20:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        times = 0
print(call().dX.tobytes().hex(), call().dB.tobytes().hex())
"""
)


def test_a_process_goes_on_after_interrupts(warm: tuple[Path, str], tmp_path: Path, draw: random.Random) -> None:
    for number in range(INTERRUPTS):
        process = start(INTERRUPTED, tmp_path / str(number // 4))
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0, 4))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
        assert (process.returncode, out) == (0, warm[1]), err


FORKED = (
    WORK
    + """
import os, random, threading, time
delay = float(sys.argv[1]) if len(sys.argv) > 1 else {delay}
thread = threading.Thread(target=call)
thread.start()
time.sleep(delay)
child = os.fork()
if child == 0:
    threading.Timer(150, os._exit, (2,)).start()
    os._exit(0 if call().dX.shape == X.shape else 1)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
)


def test_a_child_forked_at_any_moment_computes(tmp_path: Path, draw: random.Random) -> None:
    for number in range(FORKS):
        code = FORKED.replace("{delay}", str(draw.uniform(0, 5)))
        assert ended(code, tmp_path / str(number)) == "0\n"


@pytest.mark.parametrize(
    "kind",
    [
        *("read-only", "foreign", "a file", "a dangling link", "a device", "others may write", "odd name", "nested"),
        *("a long name", "a link", "nobody's home"),
    ],
)
def test_any_folder_can_be_named_and_nothing_of_others_is_lost(
    warm: tuple[Path, str], tmp_path: Path, kind: str
) -> None:
    cache = tmp_path / ("a b\u00e9\U0001f600'\"" if kind == "odd name" else "cache")
    note = cache / "cpu" / "theirs" / "note.txt"
    if kind in ("read-only", "foreign", "others may write"):
        shutil.copytree(warm[0], cache)
    if kind == "read-only":
        for path in (cache / "cpu", cache):
            path.chmod(0o555)
    elif kind == "foreign":
        (cache / "cpu" / "CACHEDIR.TAG").unlink()
        note.parent.mkdir()
        note.write_text("theirs")
    elif kind == "a file":
        cache.write_text("theirs")
    elif kind == "a dangling link":
        cache.symlink_to(tmp_path / "nowhere")
    elif kind == "a device":
        cache = Path("/dev/null")
    elif kind == "others may write":
        (cache / "cpu").chmod(0o777)
    elif kind == "nested":
        cache = cache / "of" / "some" / "depth"
    elif kind == "a long name":
        cache = tmp_path / ("a" * 300)
    elif kind == "a link":
        (tmp_path / "elsewhere").mkdir()
        cache.symlink_to(tmp_path / "elsewhere")
    elif kind == "nobody's home":
        cache = Path("~nobody-of-this-name/cache")
    assert ended(DONE, cache) == warm[1]
    command = [sys.executable, "-m", "gradkern", "cache", "clear"]
    subprocess.run(command, env=environment(cache), capture_output=True, timeout=100, check=False)
    if kind == "foreign":
        assert note.read_text() == "theirs"
    if kind == "a file":
        assert cache.read_text() == "theirs"
    if kind == "read-only":
        for path in (cache, cache / "cpu"):
            if path.exists():
                path.chmod(0o755)


@functools.cache
def examples() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    found = []
    for name, operator in gradkern.operators().items():
        for example in operator.examples[:2]:
            types = operator.combinations[0]
            inputs = [
                rng.standard_normal(shape_of(each.shape, example.axes)).astype(types[each.type])
                for each in operator.inputs_of(example.axes)
            ]
            found.append((name, inputs, dict(example.attributes)))
    return found


def run(call: tuple[str, list[np.ndarray], dict[str, Any]]) -> list[bytes]:
    name, inputs, attributes = call
    anything: Any = gradkern.run
    return [b"" if each is None else each.tobytes() for each in anything(name, *inputs, **attributes)]


def test_eight_threads_get_the_bits_of_one_while_plans_are_forgotten() -> None:
    calls = examples()
    expected = [run(call) for call in calls]
    end = time.monotonic() + 20

    def work(number: int) -> int:
        draw, done = random.Random(number), 0
        while time.monotonic() < end:
            index = draw.randrange(len(calls))
            assert run(calls[index]) == expected[index]
            if draw.random() < 0.02:
                gradkern.plan_cache.clear()
            done += 1
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        assert min(pool.map(work, range(THREADS))) > 10
    assert sum(each.name.startswith("gradkern") for each in threading.enumerate()) <= (os.cpu_count() or 1)


def test_memory_does_not_grow() -> None:
    calls = examples()

    def grow(times: int) -> int:
        for number in range(times):
            run(calls[number % len(calls)])
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = grow(CALLS // 5)
    assert grow(CALLS - CALLS // 5) - before < 16 << 10  # in KiB: less than one byte a call would be


numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none(), st.text(max_size=5))
shapes = st.lists(st.integers(0, 5), max_size=6).map(tuple)
dtypes = st.sampled_from(["f2", "f4", "f8", "i4", "?", "c8", "O", "U3", "M8[s]", "V4", ">f4"])


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """An array, or what somebody may take for one."""
    made = np.zeros(draw(shapes), draw(dtypes))
    kind = draw(st.sampled_from(["plain", "plain", "plain", "strided", "broadcast", "list", "other"]))
    if kind == "strided" and made.ndim:
        return made[..., ::-1]
    if kind == "broadcast":
        return np.broadcast_to(made, (2, *made.shape))
    if kind == "list":
        return made.tolist()
    return draw(numbers) if kind == "other" else made


WORDS = (
    "axis", "pads", "group", "epsilon", "outputs", "out", "provider", "policy", "stream", "count", "mode", "X", "pad"
)  # fmt: skip
values = st.one_of(
    numbers, st.lists(numbers, max_size=4), st.dictionaries(st.text(max_size=4), numbers, max_size=2), arrays()
)


@st.composite
def hostile(draw: st.DrawFn) -> tuple[Any, list[Any], dict[str, Any]]:
    """A call that is right but for a few things, or nothing but those."""
    name, inputs, named = draw(st.sampled_from(examples()))
    inputs, named = list(inputs), {**named, **draw(st.dictionaries(st.sampled_from(WORDS), values, max_size=2))}
    for index in draw(st.lists(st.integers(0, len(inputs) - 1), max_size=3)):
        inputs[index] = draw(arrays())
    if draw(st.integers(0, 9)) == 0:
        name, inputs = draw(st.sampled_from([name, "", "conv", 7, None])), draw(st.lists(arrays(), max_size=6))
    return name, inputs, named


@settings(max_examples=HOSTILE_CALLS, deadline=None, suppress_health_check=EVERY_CHECK)
@given(call=hostile())
@pytest.mark.filterwarnings("ignore")
def test_a_hostile_call_is_computed_or_refused_in_gradkerns_words(call: tuple[Any, list[Any], dict[str, Any]]) -> None:
    name, inputs, named = call
    anything: Any = gradkern.run
    with contextlib.suppress(gradkern.GradkernError):
        anything(name, *inputs, **named)


def test_the_cache_of_this_run_is_sound_at_its_end() -> None:
    for path in cache_files.entries("cpu"):
        cached.read(path)
