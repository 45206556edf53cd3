"""With an SM margin, gradients that need all their blocks at once run while others' blocks hold multiprocessors.

Blocks hold them until a flag is set, and the flag is set on the gradients' stream, behind them: so the blocks see it
only if the gradients did not wait for them. Where they wait, the blocks end at their bound and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.batch_norm import case
from helpers.batch_norm_on_gpu import Prepared
from helpers.bias_gelu import EXACT, assert_right, operands
from helpers.guarded import Guarded, OnDevice, described

from gradkern.call import Call
from gradkern.policy import Policy

pytestmark = pytest.mark.gpu

HELD, THREADS, LOOKS = 16, 128, 4_000_000  # looks at the flag, at most: some seconds


def holding() -> Callable[..., None]:
    """The kernel (words, looks): words[0] is the flag, [1] counts the blocks that have begun, [2] those that saw it."""
    from numba import cuda

    from gradkern.cuda.device_code import intrinsics as i

    def kernel(words: int, looks: int) -> None:
        if cuda.threadIdx.x == 0:
            i.report(words + 4)
            left = looks
            while left > 0 and i.look(words) == 0:
                cuda.nanosleep(500)  # pyright: ignore[reportCallIssue]
                left -= 1
            if left > 0:
                i.report(words + 8)

    return kernel


class Holder:
    """Blocks that hold `HELD` multiprocessors on a stream of their own, each all of one."""

    def __init__(self, device: Any) -> None:
        from helpers.driver import driver

        from gradkern.cuda.compile import compile_kernel
        from gradkern.cuda.device import check
        from gradkern.cuda.launch import Kernel, Launch

        self._driver, self._check = driver, check
        kernel = Kernel(compile_kernel(holding(), 2, device.capability, THREADS), device, device.shared_bytes)
        self._words = int(check(driver.cuMemAlloc(12), "allocating"))
        self._launch = Launch(kernel, HELD, THREADS, [self._words, LOOKS], (0, 1))
        self.stream, self.ours = (int(check(driver.cuStreamCreate(1), "creating a stream")) for _ in range(2))
        self.set_flag()  # whatever CUDA loads at a first call waits for kernels that run
        self._launch((self._words, LOOKS), self.stream)
        check(driver.cuCtxSynchronize(), "running once")

    def hold(self) -> None:
        """Begin, and return once all blocks have begun."""
        self._write(0, 3)
        self._check(self._driver.cuStreamSynchronize(self.ours), "clearing the words")
        self._launch((self._words, LOOKS), self.stream)
        while self._read()[1] < HELD:
            pass

    def set_flag(self) -> None:
        """On our stream, behind all that is there."""
        self._write(1, 1)

    def saw(self) -> int:
        """How many blocks saw the flag, once all have ended."""
        self._check(self._driver.cuStreamSynchronize(self.stream), "holding multiprocessors")
        return int(self._read()[2])

    def close(self) -> None:
        for stream in (self.stream, self.ours):
            self._driver.cuStreamDestroy(stream)
        self._driver.cuMemFree(self._words)

    def _write(self, value: int, words: int) -> None:
        self._check(self._driver.cuMemsetD32Async(self._words, value, words, self.ours), "writing words")

    def _read(self) -> np.ndarray:
        words = np.zeros(3, np.uint32)
        copied = self._driver.cuMemcpyDtoHAsync(words.ctypes.data, self._words, words.nbytes, self.ours)
        self._check(copied, "reading words")
        self._check(self._driver.cuStreamSynchronize(self.ours), "reading words")
        return words


@pytest.fixture
def holder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Holder]:
    """And the margin of as many multiprocessors as it holds."""
    from gradkern.cuda.device import activate, get_device
    from gradkern.cuda.margin import VARIABLE

    monkeypatch.setenv(VARIABLE, str(HELD))
    device = get_device(0)
    with activate(device):
        made = Holder(device)
        yield made
        made.close()


def run_beside(holder: Holder, call: Callable[[int], None], poison: Callable[[int], None]) -> None:
    """Once alone, as a first call loads what is then there; then over poison, beside the blocks that hold."""
    call(holder.ours)
    poison(holder.ours)
    holder.hold()
    call(holder.ours)
    holder.set_flag()
    assert holder.saw() == HELD


@pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])
def test_a_batch_norms_gradient(holder: Holder, last: bool) -> None:
    operands = case((64, 64, 56, 56), "bfloat16", "float32", "float32")
    prepared = Prepared(operands, last=last)
    run_beside(holder, lambda stream: prepared.run(stream=stream), prepared.poison)
    operands.check(prepared.fetch())
    prepared.free()


def test_a_gelus_gradient_with_that_of_its_bias(holder: Holder) -> None:
    from gradkern.ops.bias_gelu.cuda.plan import plan

    inputs = operands(4096, 1024, "bfloat16", "bfloat16")
    host = {name: Guarded(array.shape, array.dtype) for name, array in inputs.items()}
    for name, array in inputs.items():
        host[name].array[...] = array
        host[name].freeze()
    out = {name: Guarded(inputs[like].shape, inputs[like].dtype) for name, like in (("dX", "X"), ("dB", "B"))}
    tensors = {
        name: described(each, each.array.shape, range(each.array.ndim)) for name, each in {**host, **out}.items()
    }
    made: Any = plan(
        Call(
            operator=EXACT,
            inputs={name: tensors[name] for name in inputs},
            outputs={name: tensors[name] for name in out},
            attributes={},
            axes={"rows": (4096,), "columns": 1024},
            in_place=frozenset(),
            device="cuda:0",
            policy=Policy(),
        )
    )
    there, results = ({name: OnDevice(each) for name, each in some.items()} for some in (host, out))
    addresses = tuple(each.address for each in there.values()), tuple(each.address for each in results.values())

    def poison(stream: int) -> None:
        for each in results.values():
            each.poison(stream)

    run_beside(holder, lambda stream: made(*addresses, stream), poison)
    assert_right(EXACT, inputs, {name: each.fetch() for name, each in results.items()})
    for each in (*there.values(), *results.values()):
        each.fetch()
        each.free()
