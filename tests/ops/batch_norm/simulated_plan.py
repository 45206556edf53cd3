"""From a problem to its results: the candidates' launches, with the arguments they make, under the CUDA simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from helpers.batch_norm import INPUTS, OUTPUTS, case
from helpers.guarded import Guarded

from gradkern.call import Call, Tensor
from gradkern.channel_kernels import streaming_candidate as channel_candidate
from gradkern.channel_kernels import streaming_plan
from gradkern.cuda.device import Device
from gradkern.cuda.device_code import simulated
from gradkern.cuda.launch import Form
from gradkern.ops.batch_norm.cuda import streaming, sync
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.policy import Policy


class Kernel:
    """Stands for a loaded kernel: its Python function."""

    def __init__(self, function: Callable[..., None], shared_bytes: int) -> None:
        self.function, self.shared_bytes = function, shared_bytes

    def resident_blocks(self, _threads: int) -> int:
        return 100


def kernel_of_form(_device: Device, builder: str, form: Form, *more: Any, arguments: int) -> Kernel:
    """Stands for launch.kernel_of_form."""
    return Kernel(resolve_name(builder)(form, *more), form.shared_bytes)


class Launch:
    """Stands for launch.Launch, with its arguments."""

    def __init__(
        self,
        kernel: Kernel,
        grid: int,
        threads: int,
        arguments: Sequence[int],
        changing: Sequence[int],
        cooperative: bool,
    ) -> None:
        self.kernel, self.grid, self.threads, self.cooperative = kernel, grid, threads, cooperative
        self.arguments, self.changing = arguments, changing

    def __call__(self, values: Sequence[int], _stream: int) -> None:
        arguments = list(self.arguments)
        for index, value in zip(self.changing, values, strict=True):
            arguments[index] = value
        given = tuple(np.int64(each) for each in arguments)
        simulated.launch(self.kernel.function, self.grid, self.threads, 1, self.kernel.shared_bytes, given)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device of one multiprocessor, which runs kernels as Python."""
    device, counter = Device(0, (9, 0), 1, 232448), np.zeros(64, np.uint32)
    monkeypatch.setattr(streaming_plan, "kernel_of_form", kernel_of_form)
    monkeypatch.setattr(streaming_plan, "Launch", Launch)
    monkeypatch.setattr(streaming_plan, "device_of", lambda _call: device)
    buffer = Guarded((1 << 20,), np.uint8)
    for module in (channel_candidate, streaming_plan):
        monkeypatch.setattr(module, "scratch", lambda *_: (counter.ctypes.data, buffer.address))
    return device


def laid(name: str, shape: tuple[int, ...], dtype: Any, last: bool) -> tuple[Guarded, np.ndarray, Tensor]:
    """Guarded memory, its array in the shape of the contract, and what a plan knows of it."""
    data = name in ("dY", "X", "dX")
    held = Guarded((int(np.prod(shape)),), dtype)
    stored = held.array.reshape((shape[0], *shape[2:], shape[1]) if data and last else shape)
    array = np.moveaxis(stored, -1, 1) if data and last else stored
    return held, array, Tensor(np.dtype(dtype), shape, array.strides, 16)


Arrays = dict[str, tuple[Guarded, np.ndarray, Tensor]]


def arrays(
    given: dict[str, np.ndarray], outputs: dict[str, tuple[tuple[int, ...], Any]], last: bool
) -> tuple[Arrays, Arrays]:
    """Inputs, filled, and outputs of (shape, type)."""
    read = {name: laid(name, array.shape, array.dtype, last) for name, array in given.items()}
    for name, array in given.items():
        read[name][1][...] = array
    return read, {name: laid(name, *each, last) for name, each in outputs.items()}


def addresses(of: Arrays) -> tuple[int, ...]:
    return tuple(held.address for held, _, _ in of.values())


def tensors(of: Arrays) -> dict[str, Any]:
    return {name: tensor for name, (_, _, tensor) in of.items()}


@pytest.mark.parametrize(
    ("outputs", "last"),
    [
        (OUTPUTS, False),
        (OUTPUTS[1:2], True),
        pytest.param(OUTPUTS, True, marks=pytest.mark.every_kernel),
        pytest.param(OUTPUTS[1:2], False, marks=pytest.mark.every_kernel),
        *(pytest.param(OUTPUTS[:1], last, marks=pytest.mark.every_kernel) for last in (False, True)),
    ],
)
def test_every_candidate_computes_the_gradients(device: Device, outputs: tuple[str, ...], last: bool) -> None:
    operands = case((40, 24, 5, 7), "float16", "float16", "float32")
    shapes = {name: (operands.shape(name), operands.kind(name)) for name in outputs}
    read, _ = arrays({name: operands.inputs[name] for name in INPUTS}, {}, last)
    for launches in (1, 2):
        _, write = arrays({}, shapes, last)
        problem = Problem(*tensors(read).values(), **tensors(write))
        candidate = streaming.rebuild(problem, device, {"launches": launches})
        candidate.prepare()
        workspace = Guarded((candidate.workspace,), np.uint8)
        candidate(addresses(read), addresses(write), workspace.address, 0)
        for held in (*(each[0] for each in (*read.values(), *write.values())), workspace):
            held.check()
        operands.check({name: array for name, (_, array, _) in write.items()})


def test_the_two_steps_of_a_batch_in_parts(device: Device) -> None:
    whole = case((30, 10, 16), "bfloat16", "float32", "float32")

    def step(outputs: dict[str, Any], part: slice, **more: Any) -> dict[str, np.ndarray]:
        names = INPUTS if "dX" in outputs else [name for name in INPUTS if name != "Scale"]
        given = {name: whole.inputs[name][part] if name in ("dY", "X") else whole.inputs[name] for name in names}
        attributes = {"count": more.pop("count")} if more else {}
        read, write = arrays({**given, **more}, outputs, False)
        plan = sync.plan(Call("", tensors(read), tensors(write), attributes, {}, frozenset(), "cuda:0", Policy()))
        plan(addresses(read), addresses(write), 0)
        return {name: array for name, (_, array, _) in write.items()}

    cuts, kind = (slice(0, 11), slice(11, 30)), whole.inputs["X"].dtype
    sums = [step(dict.fromkeys(OUTPUTS[1:], ((10,), np.float32)), part) for part in cuts]
    added = {name: sums[0][name] + sums[1][name] for name in OUTPUTS[1:]}
    halves = [step({"dX": ((part.stop - part.start, 10, 16), kind)}, part, **added, count=30 * 16) for part in cuts]
    whole.check({"dX": np.concatenate([each["dX"] for each in halves]), **added})
