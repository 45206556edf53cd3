"""Launches on a GPU where the context of the kernel is not the current one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import gradkern

pytestmark = pytest.mark.gpu


@contextmanager
def another_context() -> Generator[None]:
    """A second context on the first GPU, current in this thread, as a library has it that makes one of its own."""
    from gradkern.cuda.device import check, driver

    device = check(driver.cuDeviceGet(0), "looking for a device")
    before_flags = [None] if driver.CUDA_VERSION >= 13000 else []
    context = check(driver.cuCtxCreate(*before_flags, 0, device), "making a context")
    try:
        yield
    finally:
        check(driver.cuCtxDestroy(context), "destroying a context")


def here(work: Callable[[], None]) -> None:
    with another_context():
        work()


def in_a_new_thread(work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(work).result()


def in_a_new_thread_with_another_context(work: Callable[[], None]) -> None:
    in_a_new_thread(lambda: here(work))


@pytest.mark.parametrize("where", [here, in_a_new_thread, in_a_new_thread_with_another_context])
def test_a_kernel_runs_in_its_own_context(where: Callable[[Callable[[], None]], None]) -> None:
    torch = pytest.importorskip("torch")
    dY, X, B, dX = (torch.randn(shape, device="cuda") for shape in ((512, 256), (512, 256), (256,), (512, 256)))
    plan = gradkern.prepare("BiasGeluGrad_dX", dY, X, B, outputs=["dX"], out={"dX": dX})
    plan(dY, X, B, out={"dX": dX})
    expected = dX.clone()
    dX.fill_(float("nan"))
    torch.cuda.synchronize()
    where(lambda: plan(dY, X, B, out={"dX": dX}) and None)
    torch.cuda.synchronize()
    assert torch.equal(dX, expected)
