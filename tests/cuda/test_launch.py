"""A kernel is known by all that its code depends on, and compiled only where it must be. A launch hands the driver the
arguments of its call in the kernel's order, on the right stream and context.
"""

from __future__ import annotations

import ast
import ctypes
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.driver import driver

import gradkern
from gradkern.contract.registry import operators
from gradkern.cuda import cache
from gradkern.cuda import device as devices
from gradkern.cuda import launch as launches
from gradkern.cuda.compile import Compiled
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Kernel, Launch, kernel_of, kernel_of_config
from gradkern.errors import ProviderError

CONTEXT, OTHER = 0x1000, 0x2000
WHICH = Device(0, (9, 0), 132, 232448, driver.CUcontext(CONTEXT))
KERNEL: Any = SimpleNamespace(device=WHICH, function=driver.CUfunction(0x3000), shared_bytes=4096)


class FakeDriver:
    """The real one's types, and calls that only remember."""

    def __init__(self) -> None:
        self.current = [CONTEXT]
        self.launched: list[tuple[list[int], int, int]] = []  # arguments, stream, context
        self.status = driver.CUresult.CUDA_SUCCESS
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(driver, name)

    def cuCtxGetCurrent(self) -> tuple[Any, Any]:
        return driver.CUresult.CUDA_SUCCESS, driver.CUcontext(self.current[-1])

    def cuCtxPushCurrent(self, context: Any) -> tuple[Any]:
        self.current.append(int(context))
        return (driver.CUresult.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self) -> None:
        self.current.pop()

    def cuGetErrorString(self, status: Any) -> tuple[Any, bytes]:
        return driver.CUresult.CUDA_SUCCESS, b"it is broken"

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: int, extra: int) -> tuple[Any]:
        assert int(function) == 0x3000
        pointers = (ctypes.c_void_p * self.count).from_address(parameters)
        values = [ctypes.c_int64.from_address(each or 0).value for each in pointers]
        if self.current[-1] != CONTEXT:
            return (driver.CUresult.CUDA_ERROR_INVALID_HANDLE,)
        self.launched.append((values, int(config.hStream), self.current[-1]))
        return (self.status,)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = FakeDriver()
    monkeypatch.setattr(launches, "driver", made)
    monkeypatch.setattr(devices, "driver", made)
    return made


def test_changing_arguments_are_written_wherever_the_kernel_wants_them(fake: FakeDriver) -> None:
    fake.count = 5
    launch = Launch(KERNEL, 132, 256, [10, 11, 12, 13, 14], changing=(3, 0), cooperative=True)
    launch((1 << 46, 7), 0)
    launch((8, (1 << 62) + 1), 0)
    assert [values for values, _, _ in fake.launched] == [[7, 11, 12, 1 << 46, 14], [(1 << 62) + 1, 11, 12, 8, 14]]


def test_every_launch_is_on_the_stream_of_its_call(fake: FakeDriver) -> None:
    fake.count = 1
    launch = Launch(KERNEL, 1, 32, [0], changing=(0,))
    for stream in (0, 99, 99, 1, 0):
        launch((stream,), stream)
    assert [(values[0], stream) for values, stream, _ in fake.launched] == [(each,) * 2 for each in (0, 99, 99, 1, 0)]


def test_the_context_of_the_kernel_is_current_for_the_launch_only(fake: FakeDriver) -> None:
    fake.count = 1
    fake.current = [OTHER]
    Launch(KERNEL, 1, 32, [0], changing=(0,))((5,), 0)
    assert [context for _, _, context in fake.launched] == [CONTEXT]
    assert fake.current == [OTHER]


def test_a_thread_without_a_context_keeps_the_kernels(fake: FakeDriver) -> None:
    fake.count = 1
    fake.current = [0]
    Launch(KERNEL, 1, 32, [0], changing=(0,))((5,), 0)
    assert fake.current == [0, CONTEXT]


def test_too_few_values_are_refused_and_a_refused_launch_is_an_error(fake: FakeDriver) -> None:
    fake.count = 2
    launch = Launch(KERNEL, 1, 32, [0, 0], changing=(0, 1))
    with pytest.raises(struct.error, match="expected 2 items"):
        launch((1,), 0)
    fake.status = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(ProviderError, match=r"CUDA: a launch failed: it is broken \(CUDA_ERROR_INVALID_VALUE\)"):
        launch((1, 2), 0)


@dataclass(frozen=True)
class Constants:
    outputs: frozenset[int]
    name: str = "gradkern_kernel"
    threads: int = 64
    blocks_per_processor: int = 2
    shared_bytes: int = 4096


def test_blocks_are_resident_beside_those_of_the_margin(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    done = driver.CUresult.CUDA_SUCCESS
    for name, answer in (
        ("cuModuleLoadData", 1),
        ("cuModuleGetFunction", 2),
        ("cuOccupancyMaxActiveBlocksPerMultiprocessor", 3),
        ("cuOccupancyMaxActiveClusters", 32),  # of the whole device
    ):
        monkeypatch.setattr(fake, name, lambda *_, answer=answer: (done, answer), raising=False)
    less = replace(WHICH, processors=108, margin=24)
    for device, blocks, clustered in ((WHICH, 396, 128), (less, 324, 104)):
        kernel = Kernel(Compiled(b"", 1, 0), device, 4096)
        assert kernel.resident_blocks(256) == blocks
        assert kernel.resident_blocks(256, 4) == clustered


BUILDER = "gradkern.search.kernels:compare"
CONFIG = Constants(frozenset((0, 8)))


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the kernels that were asked for in this test, of which none is compiled or loaded."""
    keys: list[str] = []

    def fetch(key: str, _compiled: Callable[[], Compiled]) -> str:
        keys.append(key)
        return key

    monkeypatch.setattr(cache, "fetch", fetch)
    monkeypatch.setattr(launches, "_loaded", {})
    monkeypatch.setattr(launches, "Kernel", lambda *given: given)
    return keys


def test_a_kernel_is_loaded_once_on_each_device(fetched: list[str]) -> None:
    first, again = (kernel_of_config(WHICH, BUILDER, CONFIG, arguments=4, cluster=2) for _ in range(2))
    assert first is again
    assert first == (fetched[0], WHICH, 4096, 2)
    kernel_of_config(replace(WHICH, index=1), BUILDER, CONFIG, arguments=4, cluster=2)
    assert fetched == [fetched[0]] * 2


def test_a_kernel_knows_the_margin_of_each_device_it_is_planned_for(fetched: list[str]) -> None:
    for device in (WHICH, replace(WHICH, processors=108, margin=24)):
        made: Any = kernel_of_config(device, BUILDER, CONFIG, arguments=4)
        assert made[1] is device
    assert fetched == [fetched[0]] * 2  # the same machine code


def test_the_key_tells_apart_all_that_is_compiled_in(fetched: list[str]) -> None:
    bounds: dict[str, Any] = {"name": "gradkern_kernel", "arguments": 4, "threads": 64, "blocks_per_processor": 2}
    kernel_of(WHICH, BUILDER, CONFIG, **bounds)
    for name in bounds:
        changed: dict[str, Any] = bounds | {name: "other" if name == "name" else 3}
        kernel_of(WHICH, BUILDER, CONFIG, **changed)
    for constants in ((), (CONFIG, None), (CONFIG, CONFIG), (replace(CONFIG, outputs=frozenset((0,))),), ("float32",)):
        kernel_of(WHICH, BUILDER, *constants, **bounds)
    kernel_of(WHICH, "gradkern.search.kernels:fill", CONFIG, **bounds)
    kernel_of(WHICH, "gradkern.ops.conv.cuda.gemm.im2col_kernel:build", CONFIG, **bounds)
    kernel_of(replace(WHICH, capability=(8, 0)), BUILDER, CONFIG, **bounds)
    assert len(set(fetched)) == len(fetched) == 13


def test_the_key_is_the_same_in_every_process(fetched: list[str]) -> None:
    other = replace(CONFIG, outputs=frozenset((8, 0)))
    assert repr(other) != repr(CONFIG)  # equal sets, in the order in which each was made
    for config in (CONFIG, other):
        kernel_of_config(WHICH, BUILDER, config, arguments=4)
        launches._loaded.clear()
    assert fetched[0] == fetched[1]


def builders() -> list[str]:
    """All that are strings in the sources; not those in documentation, nor names that are put together."""
    sources = Path(gradkern.__file__).parent.rglob("*.py")
    nodes = (node for path in sources for node in ast.walk(ast.parse(path.read_text())))
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return sorted(each for each in strings if re.fullmatch(r"gradkern[.\w]+:\w+", each))


def test_every_builder_that_is_named_exists() -> None:
    assert "gradkern.cuda.device_code.strided_copy:build" in builders()
    for each in builders():
        assert callable(resolve_name(each))


def test_a_kernel_that_is_in_the_cache_loads_no_compiler() -> None:
    code = f"""
import sys
before = {{*sys.modules}}  # the .pth file of numba-cuda loads modules at every start
from gradkern.cuda import cache, launch
from gradkern.cuda.device import Device
cache.fetch = lambda key, compiled: None
launch.Kernel = lambda *given: given
for builder in {builders()}:
    launch.kernel_of(Device(0, (9, 0), 132, 232448, None), builder, name="kernel", arguments=1, threads=32)
print(*sorted(each.partition(".")[0] for each in {{*sys.modules}} - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "gradkern" in done.stdout.split()
    assert not set(done.stdout.split()) & {"numba", "llvmlite"}


def test_no_plan_loads_a_compiler_before_a_kernel_is_missing() -> None:
    modules = {
        f"gradkern.ops.{each.family}.{name}" for each in operators().values() for name in each.providers.get("cuda", ())
    }
    assert len(modules) > 20
    code = f"""
import sys
before = {{*sys.modules}}
from importlib import import_module
for each in {sorted(modules)}:
    import_module(each)
    assert not {{"numba", "llvmlite"}} & ({{*sys.modules}} - before), each
"""
    subprocess.run([sys.executable, "-c", code], check=True)
