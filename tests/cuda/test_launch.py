"""A launch hands the driver the arguments of its call in the kernel's order, on the right stream and context."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver

from gradkern.cuda import device as devices
from gradkern.cuda import launch as launches
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch
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


def test_too_few_values_are_refused_and_a_refused_launch_is_an_error(fake: FakeDriver) -> None:
    fake.count = 2
    launch = Launch(KERNEL, 1, 32, [0, 0], changing=(0, 1))
    with pytest.raises(ValueError, match="size"):
        launch((1,), 0)
    fake.status = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(ProviderError, match=r"CUDA: a launch failed: it is broken \(CUDA_ERROR_INVALID_VALUE\)"):
        launch((1, 2), 0)
