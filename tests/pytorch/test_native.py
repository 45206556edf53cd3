"""Calls that machine code answers: who answers, that nothing is lost on the way to Python, and what is forgotten."""

from __future__ import annotations

import ctypes
import gc
import resource
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

import gradkern
import gradkern.torch
from gradkern.torch.native import recording, shim, words
from gradkern.torch.native import records as native_records
from gradkern.torch.native.recording import Cudnn, Output, Steps
from gradkern.torch.overrides import switch
from gradkern.torch.overrides.kernel import Kernel

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(bool(shim.unavailable("CPU")), reason=shim.unavailable("CPU") or "available"),
]

aten: Any = torch.ops.aten


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    gradkern.torch.forget()
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now", native=True):
        yield
    gradkern.torch.forget()


def kernel_of(name: str) -> Kernel:
    return next(each for each in switch._kernels() if each.translation.name == name and each.key == "CPU")


def natively() -> int:
    return sum(row.natively for row in gradkern.torch.report())


ROWS = torch.Generator().manual_seed(3)


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=ROWS).to(dtype)


def layer_norm(mask: list[bool], weight: bool = True, dtype: torch.dtype = torch.float32) -> Callable[[], Any]:
    dy, x, scale = rows(5, 8, dtype=dtype), rows(5, 8, dtype=dtype), rows(8, dtype=dtype)
    mean, rstd = x.mean(1, keepdim=True), x.std(1, keepdim=True).reciprocal()
    given, bias = (scale, scale.clone()) if weight else (None, None)
    return lambda: aten.native_layer_norm_backward(dy, x, [8], mean, rstd, given, bias, mask)


def softmax(name: str) -> Callable[[], Any]:
    dy, y = rows(4, 3, 7), rows(4, 3, 7).softmax(1)
    given = y.log() if "log" in name else y
    return lambda: getattr(aten, name)(dy, given, 1, torch.float32)


def gelu(approximate: str) -> Callable[[], Any]:
    dy, x = rows(3, 1024), rows(3, 1024)
    return lambda: aten.gelu_backward(dy, x, approximate=approximate)


def frozen_batch_norm() -> Callable[[], Any]:
    dy, x, scale, mean, variance = rows(2, 3, 4, 5), rows(2, 3, 4, 5), rows(3), rows(3), rows(3).abs() + 0.5
    every = [True, True, True]
    return lambda: aten.native_batch_norm_backward(dy, x, scale, mean, variance, None, None, False, 1e-5, every)


def images(size: int) -> torch.Tensor:
    return rows(2, 3, size, size).to(memory_format=torch.channels_last)


def average_pool(divisor: int | None) -> Callable[[], Any]:
    dy, x = images(3), images(6)
    return lambda: aten.avg_pool2d_backward(dy, x, [2, 2], [2, 2], [0, 0], False, True, divisor)


def adaptive_pool() -> Callable[[], Any]:
    dy, x = images(1), images(6)
    return lambda: aten._adaptive_avg_pool2d_backward(dy, x)


def resized(name: str, *given: Any) -> Callable[[], Any]:
    dy = rows(2, 3, 8, 8)
    return lambda: getattr(aten, f"upsample_{name}2d_backward")(dy, [8, 8], [2, 3, 4, 4], *given)


CALLS: dict[str, Callable[[], Any]] = {
    "layer norm": layer_norm([True, True, True]),
    "layer norm in float64": layer_norm([True, True, True], dtype=torch.float64),
    "layer norm's input": layer_norm([True, False, False]),
    "layer norm's parameters": layer_norm([False, True, True]),
    "layer norm without a weight": layer_norm([True, False, False], weight=False),
    "GELU": gelu("none"),
    "GELU by tanh": gelu("tanh"),
    "softmax": softmax("_softmax_backward_data"),
    "log softmax": softmax("_log_softmax_backward_data"),
    "batch norm in evaluation": frozen_batch_norm(),
    "average pool": average_pool(None),
    "average pool with a divisor": average_pool(3),
    "adaptive average pool": adaptive_pool(),
    "nearest upsampling": resized("nearest"),
    "linear upsampling": resized("bilinear", False),
    "cubic upsampling by given scales": resized("bicubic", False, 2.0, 2.0),
}


def results(call: Callable[[], Any]) -> list[Any]:
    found = call()
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", CALLS)
def test_machine_code_gives_what_python_gives(name: str) -> None:
    call = CALLS[name]
    results(call)  # PyTorch's kernel answers the first call of a kind
    by_python = results(call)
    assert natively() == 0
    for _ in range(2):
        found = results(call)
        assert natively() > 0, [row.by_python for row in gradkern.torch.report()]
        for one, other in zip(found, by_python, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                assert torch.equal(one, other)
                assert (one.dtype, one.stride(), one.device) == (other.dtype, other.stride(), other.device)
    assert natively() == 2
    (row,) = gradkern.torch.report()
    assert (row.taken, row.declined, row.reason, row.by_python) == (3, 1, "", "")


@pytest.mark.parametrize("weight", [True, False])
def test_calls_of_a_backward_pass_are_answered(weight: bool) -> None:
    """Autograd gives a weight that is not there as an undefined tensor."""
    scale = torch.ones(8, requires_grad=True) if weight else None
    y = x = torch.randn(5, 8, requires_grad=True)
    for _ in range(50):
        y = functional.layer_norm(y, (8,), scale)
    loss = (y * torch.randn(5, 8)).sum()
    known = [each for each in (x, scale) if each is not None]
    gradkern.torch.disable()
    expected = torch.autograd.grad(loss, known, retain_graph=True)
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now", native=True)
    for _ in range(3):
        for one, other in zip(torch.autograd.grad(loss, known, retain_graph=True), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert natively() > 3 * 50 - 4
    assert all(len(each.records) <= 2 for each in kernel_of("native_layer_norm_backward").signatures())


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADKERN_NATIVE", "0")
    assert shim.unavailable.__wrapped__("CPU") == "GRADKERN_NATIVE is 0"


def test_calls_that_machine_code_never_recognises_are_soon_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    native = kernel_of("native_layer_norm_backward").override.native
    assert native is not None
    monkeypatch.setattr(native, "_key_of", lambda values: (1, 2, 3))
    for _ in range(40):
        CALLS["layer norm"]()
    (row,) = gradkern.torch.report()
    assert (row.taken, row.natively, row.by_python) == (39, 0, "machine code does not recognise such calls")
    (signature,) = kernel_of("native_layer_norm_backward").signatures()
    assert all(each.words[words.RECORD_BYTES] == -1 for each in signature.records)


def test_calls_that_tune_makes_to_take_time_are_not_counted() -> None:
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, native=True):
        gradkern.torch.tune(CALLS["layer norm"])
        kernel = kernel_of("native_layer_norm_backward")
        assert any(each.comparison for each in kernel.signatures())
        assert all(row.natively <= row.taken for row in gradkern.torch.report())


def test_calls_that_differ_in_anything_are_not_taken_for_one_another() -> None:
    mean, rstd, bias = rows(6, 1), rows(6, 1).abs() + 1, rows(8)
    base = {"grad": rows(6, 8), "x": rows(6, 8), "shape": [8], "weight": rows(8), "mask": [True, True, True]}

    def call(**change: Any) -> list[Any]:
        c = {**base, **change}
        w, b = c["weight"], None if c["weight"] is None else bias
        m, r = (mean, rstd) if c["x"].shape[0] == 6 else (mean[:3], rstd[:3])
        return list(aten.native_layer_norm_backward(c["grad"], c["x"], c["shape"], m, r, w, b, c["mask"]))

    changes: list[dict[str, Any]] = [
        {},
        {"mask": [True, False, False]},
        {"mask": [False, True, True]},
        {"weight": None, "mask": [True, False, False]},
        {"grad": rows(8, 6).t()},
        {"grad": rows(1, 8).expand(6, 8)},
        {"x": rows(6, 16)[:, ::2]},
        {"x": rows(3, 8), "grad": rows(3, 8)},
        {"weight": rows(8).double().float()},
        {"x": rows(49)[1:].view(6, 8)},
    ]
    with gradkern.torch.enabled(devices="cpu", min_bytes=1 << 40):
        expected = [call(**each) for each in changes]
    for _ in range(5):
        for change, known in zip(changes, expected, strict=True):
            for one, other in zip(call(**change), known, strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    torch.testing.assert_close(one, other)
    assert natively() > len(changes)


class Strange(BaseException):
    """An exception of a class that PyTorch does not know."""


@pytest.mark.parametrize(
    "error", [Strange("odd"), torch.OutOfMemoryError("no memory"), KeyError("a"), KeyboardInterrupt()]
)
def test_what_python_raises_arrives_as_it_is(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def original(*_: Any, **__: Any) -> Any:
        raise error

    override = kernel_of("native_layer_norm_backward").override
    x = torch.randn(3, 8, requires_grad=True)
    y = functional.layer_norm(x, (8,)).square().sum()
    call = CALLS["layer norm"]
    monkeypatch.setattr(override, "original", original)
    for _ in range(3):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error
    with pytest.raises(type(error)) as caught:
        y.backward()
    assert caught.value is error
    found: list[BaseException] = []

    def in_a_thread() -> None:
        try:
            call()
        except BaseException as raised:
            found.append(raised)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert found == [error]
    monkeypatch.undo()
    results(call)


def test_errors_of_pytorchs_kernel_keep_their_class_and_words() -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        aten._softmax_backward_data(rows(2, 3), rows(2, 3), 7, torch.float32)


@pytest.mark.parametrize("way", ["taken", "handed on"])
def test_no_tensor_outlives_its_call(way: str) -> None:
    alive: list[Any] = []

    def call() -> None:
        dy, x, scale, bias, mean, rstd = rows(5, 8), rows(5, 8), rows(8), rows(8), rows(5, 1), rows(5, 1)
        least = 0 if way == "taken" else 1 << 40
        with gradkern.torch.enabled(devices="cpu", min_bytes=least, plan="now", native=True):
            found = aten.native_layer_norm_backward(dy, x, [8], mean, rstd, scale, bias, [True] * 3)
        for each in (dy, x, scale, bias, mean, rstd, *found):
            alive.extend((weakref.ref(each), weakref.ref(each.untyped_storage())))

    for _ in range(5):
        call()
    gc.collect()
    assert not [each for each in alive if each() is not None]


def test_memory_is_flat_over_many_calls() -> None:
    code = """
import resource, torch, gradkern.torch
torch.set_num_threads(1)
aten = torch.ops.aten
x, y, w, b = torch.randn(64, 64), torch.randn(64, 64), torch.randn(64), torch.randn(64)
s, t = torch.randn(64, 1), torch.randn(64, 1)
def call():
    return aten.native_layer_norm_backward(x, y.t(), [64], s, t, w, b, [True] * 3)
def small():
    return aten.native_layer_norm_backward(x, y, [64], s, t, None, None, [True, False, False])
gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now", native=True)
def peak():
    for _ in range(10_000):
        call()
    gradkern.torch.enable(devices="cpu", min_bytes=1 << 40, native=True)
    for _ in range(10_000):
        small()
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now", native=True)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
first = peak()
print(peak() - first, sum(row.natively for row in gradkern.torch.report()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    grown, answered = map(int, done.stdout.split())
    assert grown < 1024  # KiB; a tensor of each call would be 320 MB
    assert answered >= 0


def test_a_forked_process_goes_on_while_threads_were_calling() -> None:
    code = """
import os, threading, torch, gradkern.torch
torch.set_num_threads(1)
x, y, s, t = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 1), torch.randn(8, 1)
def call():
    return torch.ops.aten.native_layer_norm_backward(x, y, [8], s, t, None, None, [True, False, False])[0]
gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now", native=True)
expected = [call() for _ in range(4)][-1]
natively = lambda: sum(row.natively for row in gradkern.torch.report())
def work():
    while True:
        call()
threading.Thread(target=work, daemon=True).start()
for _ in range(5):
    child = os.fork()
    if not child:
        before = natively()
        same = all(torch.equal(call(), expected) for _ in range(50))
        taken = natively() - before
        gradkern.torch.forget()
        os._exit(0 if same and taken == 50 and natively() == 0 else 1)
    if os.waitpid(child, 0)[1]:
        os._exit(1)
os._exit(0)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=300)


@pytest.mark.parametrize("least", [0, 1 << 40])
def test_what_a_signals_handler_raises_before_python_answers_comes_out_of_backward(least: int) -> None:
    """The signal comes in a long product, and the handler runs when the next function of Python begins: it answers a
    GELU of a new shape, or hands on a small one.
    """
    code = f"""
import gc, signal, time, torch, weakref, gradkern.torch
torch.set_num_threads(1)
w = torch.randn(1500, 1500)
def loss(rows):
    x = torch.randn(rows, 1500, requires_grad=True)
    return x, (torch.nn.functional.gelu(x) @ w @ w).sum()
class Alarm(Exception):
    pass
def handler(*_):
    raise Alarm("late")
gradkern.torch.enable("gelu", devices="cpu", min_bytes={least}, plan="now")
for _ in range(3):
    loss(1000)[1].backward()
signal.signal(signal.SIGALRM, handler)
count, held = 0, []
for rows in range(1001, 1006):
    x, y = loss(rows)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    try:
        y.backward()
        time.sleep(0.1)
    except Alarm as error:
        assert str(error) == "late" and error.__traceback__ is not None
        count += 1
        held += [weakref.ref(error), weakref.ref(x)]
    loss(rows)[1].backward()
del x, y
gc.collect()
print(count, sum(each() is not None for each in held))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["5", "0"]


def test_what_is_declined_is_handed_on() -> None:
    call = CALLS["layer norm"]
    for _ in range(3):
        results(call)
    assert natively() == 1
    (signature,) = kernel_of("native_layer_norm_backward").signatures()
    signature.decline("for a test")
    results(call)
    (row,) = gradkern.torch.report()
    assert (row.taken, row.declined, row.natively, row.reason) == (2, 2, 1, "for a test")


def test_calls_left_to_pytorch_reach_its_kernel_without_a_look_from_python() -> None:
    call, kernel = CALLS["layer norm"], kernel_of("native_layer_norm_backward")
    with gradkern.torch.enabled(devices="cpu", min_bytes=1 << 40):
        expected = results(call)
    for _ in range(3):
        results(call)
    (signature,) = kernel.signatures()
    signature.decline("for a test")
    results(call)  # Python leaves it, and machine code the next ones
    tick = signature.declined.tick
    signature.declined.tick = lambda: pytest.fail("Python has looked at it")
    for _ in range(5):
        assert all(map(torch.equal, results(call), expected))
    signature.declined.tick = tick
    (row,) = [each for each in gradkern.torch.report() if each.signature == signature.text]
    assert (row.taken, row.declined, row.natively, row.reason) == (2, 7, 1, "for a test")
    with (
        gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now", native=True, on_refusal="raise"),
        pytest.raises(gradkern.ProviderError, match="for a test"),
    ):
        results(call)
    results(call)
    signature.reason = ""  # as comparisons of steps try such calls again
    signature.withdraw()
    kernel.plan(signature)
    for _ in range(20):  # and as often as they like
        signature.withdraw()
        results(call)
        results(call)
    (row,) = [each for each in gradkern.torch.report() if each.signature == signature.text]
    assert (row.taken, row.natively) == (42, 21)


def test_small_calls_are_counted_whoever_hands_them_on() -> None:
    call = resized("bilinear", False)  # whose kernel on GPUs raises where only deterministic algorithms are allowed

    def small() -> int:
        return sum(row.declined for row in gradkern.torch.report() if row.signature == "small tensors")

    bytes_of_gradient = 4 * 2 * 3 * 8 * 8
    for native in (True, False):
        with gradkern.torch.enabled(devices="cpu", min_bytes=bytes_of_gradient + 1, native=native):
            before = small()
            for _ in range(3):
                results(call)
            assert small() == before + 3
            torch.use_deterministic_algorithms(True)
            try:
                results(call)
            finally:
                torch.use_deterministic_algorithms(False)
            assert small() == before + 3
    with gradkern.torch.enabled(devices="cpu", min_bytes=bytes_of_gradient, native=True):
        results(call)
        assert small() == 6
    gradkern.torch.forget()
    assert small() == 0


def test_errors_of_pytorchs_kernel_keep_their_class_after_disable() -> None:
    CALLS["softmax"]()
    gradkern.torch.disable()
    with pytest.raises(IndexError, match="Dimension out of range"):
        aten._softmax_backward_data(rows(2, 3), rows(2, 3), 7, torch.float32)


def test_calls_under_the_gate_and_after_disable_are_pytorchs() -> None:
    call = CALLS["layer norm"]
    for _ in range(3):
        results(call)
    bits = results(call)
    with gradkern.torch.enabled(devices="cpu", min_bytes=1 << 40, native=True):
        results(call)
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, native=False):
        results(call)
    gradkern.torch.disable()
    results(call)
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now", native=True)
    for one, other in zip(results(call), bits, strict=True):
        assert torch.equal(one, other)
    taken = sum(row.taken for row in gradkern.torch.report())
    assert (taken, natively()) == (5, 3)


def test_records_are_bounded_and_counts_outlive_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_records, "MOST", 4)
    given = [(rows(n, 8), rows(n, 8), rows(n, 1), rows(n, 1), rows(8), rows(8)) for n in range(2, 12)]
    for _ in range(6):
        for dy, x, mean, rstd, scale, bias in given:
            aten.native_layer_norm_backward(dy, x, [8], mean, rstd, scale, bias, [True] * 3)
    kernel = kernel_of("native_layer_norm_backward")
    assert kernel.override.native is not None
    assert len(kernel.override.native._records) == 4
    assert sum(row.taken for row in gradkern.torch.report()) == 50
    for _ in range(3):
        dy, x, mean, rstd, scale, bias = given[-1]
        aten.native_layer_norm_backward(dy, x, [8], mean, rstd, scale, bias, [True] * 3)
    assert sum(row.taken for row in gradkern.torch.report()) == 53
    gradkern.torch.forget()
    gc.collect()
    assert natively() == 0
    assert not kernel.override.native._retired


def test_threads_share_records_that_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_records, "MOST", 3)
    given = [(rows(n, 8), rows(n, 8), rows(n, 1), rows(n, 1), rows(8), rows(8)) for n in range(2, 10)]

    def call(n: int) -> list[torch.Tensor]:
        dy, x, mean, rstd, scale, bias = given[n % len(given)]
        return list(aten.native_layer_norm_backward(dy, x, [8], mean, rstd, scale, bias, [True] * 3))

    with gradkern.torch.enabled(devices="cpu", min_bytes=1 << 40):
        expected = [call(n) for n in range(len(given))]

    def check(n: int) -> None:
        for one, other in zip(call(n), expected[n % len(given)], strict=True):
            torch.testing.assert_close(one, other)
        if n % 97 == 0:
            gc.collect()

    gc.collect()
    gc.freeze()  # all that PyTorch and other tests have made takes a second to look at, in each of 30 collections
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(check, range(3000)))
    total = sum(row.taken + row.declined for row in gradkern.torch.report() if "tensors" not in row.signature)
    assert total == 3000


def test_flags_and_policies_of_what_a_search_chooses_are_looked_at_in_every_call() -> None:
    """Of batch norm, whose plan for the CPU cannot be repeated: by a record that launches nothing."""
    kernel = kernel_of("native_batch_norm_backward")
    native = kernel.override.native
    assert native is not None
    dy, x, scale, mean, inv_std = rows(2, 3, 4), rows(2, 3, 4), rows(3), rows(3), rows(3).abs()
    args = (dy, x, scale, None, None, mean, inv_std, True, 1e-5, [True, True, True])
    cpu = torch.device("cpu")
    outputs = [Output(n, tuple(like.shape), like.stride(), like.dtype, cpu) for n, like in enumerate((x, scale, scale))]
    record = native.add(native.given(args, {}), Steps(outputs), x.nbytes, cpu)
    assert record is not None

    def taken() -> bool:
        before = record.calls
        aten.native_batch_norm_backward(*args)
        return record.calls > before

    assert taken()
    with gradkern.policy(deterministic=True):
        assert not taken()
    torch.use_deterministic_algorithms(True)
    try:
        assert not taken()
    finally:
        torch.use_deterministic_algorithms(False)
    with torch.backends.cudnn.flags(deterministic=True):
        assert not taken()
    with torch.backends.cudnn.flags(enabled=False):
        assert not taken()
    assert taken()


class Driver:
    """A GPU's driver for machine code: what was launched, and what it answers."""

    def __init__(self) -> None:
        self.stream, self.capturing, self.status, self.launched = 77, 0, 0, list[Any]()
        word, number = ctypes.POINTER(ctypes.c_int64), ctypes.c_int32
        kinds = {
            words.CURRENT_STREAM: (self._current, (number, word)),
            words.IS_CAPTURING: (self._is_capturing, (ctypes.c_int64, ctypes.POINTER(number))),
            words.LAUNCH_KERNEL: (self._launch, (word, ctypes.c_int64, ctypes.POINTER(word), ctypes.c_int64)),
        }
        self._callbacks = {n: ctypes.CFUNCTYPE(number, *types)(function) for n, (function, types) in kinds.items()}

    def addresses(self) -> Any:
        """Those of PyTorch's functions, with the driver's among them."""
        made = type(shim.addresses("CPU")).from_buffer_copy(shim.addresses("CPU"))
        for place, callback in self._callbacks.items():
            made[place] = ctypes.cast(callback, ctypes.c_void_p).value
        return made

    def _current(self, device: int, found: Any) -> int:
        found[0] = self.stream
        return 0

    def _is_capturing(self, stream: int, found: Any) -> int:
        assert stream == self.stream
        found[0] = self.capturing
        return 0

    def _launch(self, config: Any, function: int, pointers: Any, extra: int) -> int:
        self.launched.append((function, config[:7], [pointers[n][0] for n in range(5)], extra))
        return self.status


def test_a_gpus_kernel_is_launched_with_the_addresses_of_the_call(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    kernel, cpu = kernel_of("_softmax_backward_data"), torch.device("cpu")
    native, driver = kernel.override.native, Driver()
    assert native is not None
    addresses, before = driver.addresses(), native._block[words.BLOCK_SHIM]
    monkeypatch.setattr(kernel, "_teach", lambda *_: None)
    dy, y = rows(4, 8), rows(4, 8)
    args = dy, y, 1, torch.float32
    steps = Steps(
        [Output(0, (4, 8), (8, 1), torch.float32, cpu), Output(-1, (256,), (1,), torch.uint8, cpu)], scratch=64
    )
    patches = [(1, 0, 0), (2, words.MOST_ARGUMENTS, 16), (4, words.COUNTER, 0), (0, words.MOST_ARGUMENTS + 1, 0)]
    steps.add(1234, [0, 0, 0, 99, 0], patches, [1, 2, 3, 4, 5, 6, 7])
    record = native.add(native.given(args, {}), steps, y.nbytes, torch.device("cuda", 0))
    assert record is not None

    def launched() -> list[Any]:
        driver.launched.clear()
        found = aten._softmax_backward_data(*args)
        assert found.shape == (4, 8)
        return [(*each[:2], [each[2][1], each[2][2] - found.data_ptr(), *each[2][3:]]) for each in driver.launched]

    native._block[words.BLOCK_SHIM] = ctypes.addressof(addresses)
    request.addfinalizer(lambda: native._block.__setitem__(words.BLOCK_SHIM, before))
    assert launched() == []  # the stream's scratch memory is not known
    native.know_stream(77, 0, 111, 222, 32)
    assert launched() == []  # nor is it large enough
    native.know_stream(77, 1, 333, 444, 64)
    assert launched() == []  # nor another device's
    native.know_stream(77, 0, 111, 222, 64)
    expected = [(1234, [1, 2, 3, 4, 77, 6, 7], [dy.data_ptr(), 16, 99, 111])]
    assert launched() == expected
    driver.stream = 78
    assert launched() == []
    native.know_stream(78, 0, 555, 222, 128)
    assert launched()[0][2][-1] == 555
    driver.capturing = 1
    assert launched() == []
    driver.capturing, driver.stream = 0, 2  # the default stream of each thread
    assert launched() == []
    driver.stream, driver.status = 77, 700
    assert launched()[0][0] == 1234  # refused: Python answers
    driver.status = 0
    assert launched() == expected
    assert record.calls == 3


class FakeCudnn:
    """cuDNN for machine code: what was called, and the status that each function answers with."""

    def __init__(self) -> None:
        self.calls, self.status, self.device = list[Any](), dict[str, int](), 0
        word, number = ctypes.c_int64, ctypes.c_int32
        pointer = ctypes.POINTER(word)
        kinds: dict[int, Any] = {
            words.CUDNN_CREATE: (self._create, (number, pointer)),
            words.CUDNN_SET: (self._set, (word, number, number, word, pointer)),
            words.CUDNN_FINALIZE: (self._called("finalize"), (word,)),
            words.CUDNN_DESTROY: (self._called("destroy"), (word,)),
            words.CUDNN_SET_STREAM: (self._called("stream"), (word, word)),
            words.CUDNN_EXECUTE: (self._called("execute"), (word, word, word)),
        }
        self._callbacks = {n: ctypes.CFUNCTYPE(number, *types)(function) for n, (function, types) in kinds.items()}
        functions = {n: ctypes.cast(each, ctypes.c_void_p).value or 0 for n, each in self._callbacks.items()}
        self.words = Cudnn({**functions, words.CUDNN_HANDLE: 5, words.CUDNN_DEVICE: 0})
        self.current = ctypes.CFUNCTYPE(number, ctypes.POINTER(number))(self._current)

    def _called(self, name: str) -> Callable[..., int]:
        def function(*given: int) -> int:
            self.calls.append((name, *given))
            return self.status.get(name, 0)

        return function

    def _current(self, found: Any) -> int:
        found[0] = self.device
        return 0

    def _create(self, kind: int, found: Any) -> int:
        found[0] = 900
        return self._called("create")(kind)

    def _set(self, pack: int, attribute: int, kind: int, count: int, values: Any) -> int:
        return self._called("set")(pack, attribute, kind, values[:count])


def test_plans_of_cudnns_are_executed_with_a_pack_of_each_calls_own(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    kernel, cpu = kernel_of("_softmax_backward_data"), torch.device("cpu")
    native, driver, cudnn = kernel.override.native, Driver(), FakeCudnn()
    assert native is not None
    addresses, before = driver.addresses(), native._block[words.BLOCK_SHIM]
    addresses[words.CURRENT_DEVICE] = ctypes.cast(cudnn.current, ctypes.c_void_p).value or 0
    monkeypatch.setattr(kernel, "_teach", lambda *_: None)
    args = rows(4, 8), rows(4, 8), 1, torch.float32
    steps = Steps([Output(0, (4, 8), (8, 1), torch.float32, cpu), Output(-1, (256,), (1,), torch.uint8, cpu)])
    patches = [(0, 1, 0), (1, 0, 0), (2, words.MOST_ARGUMENTS, 0), (3, words.MOST_ARGUMENTS + 1, 64)]
    for plan in (7000, 7001):
        steps.add(plan, [0] * 4, patches, [16, 1000, 3, 1001, 1003, 6, 2, 1, 3], cudnn.words.address)
    record = native.add(native.given(args, {}), steps, args[1].nbytes, torch.device("cuda", 0))
    assert record is not None
    native._block[words.BLOCK_SHIM] = ctypes.addressof(addresses)
    request.addfinalizer(lambda: native._block.__setitem__(words.BLOCK_SHIM, before))

    def called(taken: int) -> list[Any]:
        cudnn.calls.clear()
        start = record.calls
        found = aten._softmax_backward_data(*args)
        assert record.calls - start == taken
        if taken:
            given = [args[1].data_ptr(), args[0].data_ptr(), found.data_ptr()]
            assert [each[4] for each in cudnn.calls if each[:3] == ("set", 900, 1001)] == [given] * 2
        else:
            torch.testing.assert_close(found, expected)
        return cudnn.calls

    with gradkern.torch.enabled(devices="cpu", min_bytes=1 << 40, native=True):
        expected = aten._softmax_backward_data(*args)
    names = ["create", "set", "set", "set", "finalize", "stream", "execute", "destroy"]
    calls = called(1)
    assert [each[0] for each in calls] == names * 2
    assert calls[0] == ("create", 16)
    assert calls[1] == ("set", 900, 1000, 3, [2, 1, 3])
    assert calls[3][:4] == ("set", 900, 1003, 6)
    assert [each for each in calls if each[0] in ("stream", "execute")] == [
        ("stream", 5, 77),
        ("execute", 5, 7000, 900),
        ("stream", 5, 77),
        ("execute", 5, 7001, 900),
    ]
    for name in ("set", "finalize", "stream", "execute"):  # what cuDNN refuses Python computes, and no pack is left
        cudnn.status = {name: 3000}
        called(0)
        assert cudnn.calls[-1] == ("destroy", 900)
    cudnn.status = {"create": 3000}
    assert [each[0] for each in called(0)] == ["create"]
    cudnn.status = {}
    with cudnn.words:  # in use: Python computes it, after some tries
        assert [each[0] for each in called(0)] == [*names[:5], "destroy"]
    cudnn.device = 1  # another one is current
    assert called(0) == []
    cudnn.device = 0
    assert len(called(1)) == 16


@dataclass
class Candidate:
    """Of a search."""

    plan: Any
    workspace: int
    REPEATABLE: bool = True
    name: str = "own"

    def __call__(self, inputs: Any, outputs: Any, workspace: Any, stream: Any) -> None:
        self.plan((*inputs, *outputs), workspace, stream)


def test_the_winners_of_a_convolutions_searches_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")
    from gradkern.cuda.dry_run import DryRunDevice
    from gradkern.cudnn.plan import Plan
    from gradkern.search import plan as search_plan

    monkeypatch.setattr(search_plan, "is_current", lambda device: True)
    monkeypatch.setattr(recording, "_cudnn", lambda index: of_device)
    by_cudnn, of_device = Plan.__new__(Plan), Cudnn({})
    by_cudnn.function, by_cudnn._numbers, by_cudnn._packs = 7000, (1, 3, 2), {}

    class Own:
        function, block = 8000, ([0, 0, 5], [1, 0], [1] * 7)

        def __call__(self, addresses: Any, workspace: Any, stream: Any) -> None:
            stream.add(self, (addresses[-1], workspace + 256))

    found = {"dX": Candidate(by_cudnn, 1 << 26), "dW": Candidate(Own(), 512)}
    choices: Any = {name: SimpleNamespace(candidate=each) for name, each in found.items()}
    places = {"dX": ((0, 2), (0,)), "dW": ((0, 1), (1,))}

    def bound(chosen: Any) -> Any:
        return tuple(search_plan.BoundCandidate(each.candidate, *places[name]) for name, each in chosen.items())

    plan = search_plan.SearchPlan(DryRunDevice(3, (9, 0), 132, 232448), choices, bound)
    gpu = torch.device("cuda", 3)
    outputs = [Output(n, (4,), (1,), torch.bfloat16, gpu) for n in range(2)]
    steps = recording.of_cuda(plan, [0, 1, 2], outputs, gpu)
    memory = words.MOST_ARGUMENTS + 2
    assert (steps.outputs[2].place, steps.outputs[2].shape, steps.scratch) == (-1, (1 << 26,), 0)

    def launch(n: int) -> tuple[Any, ...]:
        function, template, count, patches, patch_count, config, cudnn = steps.launches[n]
        read = [list((ctypes.c_int64 * size).from_address(at)) for at, size in ((template, count), (config, 7))]
        found = (ctypes.c_int64 * (3 * patch_count)).from_address(patches)
        return function, *read, [tuple(found[at : at + 3]) for at in range(0, 3 * patch_count, 3)], cudnn

    addresses = [(0, 0, 0), (1, 2, 0), (2, words.MOST_ARGUMENTS, 0), (3, memory, 0)]
    assert launch(0) == (7000, [0] * 4, [16, 1000, 3, 1001, 1003, 6, 1], addresses, of_device.address)
    assert by_cudnn._guard is of_device  # Python executes it in turns with machine code
    assert launch(1) == (8000, [0, 0, 5], [1] * 7, [(1, words.MOST_ARGUMENTS + 1, 0), (0, memory, 256)], 0)
    choices["dW"].candidate.REPEATABLE = False
    with pytest.raises(recording.Unrepeatable):
        recording.of_cuda(search_plan.SearchPlan(plan._device, choices, bound), [0, 1, 2], outputs[:2], gpu)


def test_enable_imports_no_numba_once_the_machine_code_is_cached() -> None:
    code = (
        "import sys, gradkern.torch; gradkern.torch.enable(devices='cpu', native=True, plan='now'); "
        "import torch; x = torch.randn(4, 8, requires_grad=True); "
        "torch.nn.functional.layer_norm(x, (8,)).sum().backward(); "
        "from gradkern.torch.overrides import switch; "
        "registered = [each for each in switch._kernels() if each.override.native is not None]; "
        "print('numba' in sys.modules, gradkern.torch.report().declined, len(registered) > 9)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    subprocess.run(command, capture_output=True, check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1", "True"]
    assert not done.stderr


def test_convolutions_stay_pythons_and_the_report_says_why() -> None:
    x, kernel = torch.randn(1, 2, 6, 6, requires_grad=True), torch.randn(2, 2, 3, 3, requires_grad=True)
    for _ in range(3):
        functional.conv2d(x, kernel).sum().backward()
    (row,) = gradkern.torch.report()
    assert (row.taken, row.natively) == (2, 0)
    assert "TF32" in row.by_python
    assert "Python answers" in str(gradkern.torch.report())


def test_where_machine_code_cannot_be_made_python_answers_and_the_report_says_why() -> None:
    code = """
import torch, gradkern.torch
from gradkern.torch.native import loaded

def fails(block):
    raise OSError("no executable memory")

loaded.free_function = fails
gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now", native=True)
x = torch.randn(4, 8, requires_grad=True)
for _ in range(3):
    torch.nn.functional.layer_norm(x, (8,)).sum().backward()
(row,) = gradkern.torch.report()
print(row.taken, row.natively, row.by_python)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 0 OSError: no executable memory"


def test_memory_that_is_given_twice_teaches_nothing_about_other_calls() -> None:
    """Two views are two tensors to PyTorch, at one address."""
    dy, x = rows(3, 1024), rows(3, 1024)
    expected = aten.gelu_backward(dy, x)
    for _ in range(2):
        aten.gelu_backward(x.view_as(x), x)
    assert natively() == 0
    for _ in range(3):
        torch.testing.assert_close(aten.gelu_backward(dy, x), expected)
    assert natively() == 2


def test_a_gate_looks_at_the_tensor_that_the_option_is_about() -> None:
    """Of an embedding that is the gradient, not the few indices; by a record that launches nothing."""
    native = kernel_of("embedding_dense_backward").override.native
    assert native is not None
    dy, indices, cpu = rows(16, 64), torch.zeros(16, dtype=torch.int64), torch.device("cpu")
    args = dy, indices, 8, -1, False
    steps = Steps([Output(0, (8, 64), (64, 1), torch.float32, cpu)])
    record = native.add(native.given(args, {}), steps, dy.nbytes, cpu)
    assert record is not None
    for least, taken in ((0, 1), (dy.nbytes, 2), (dy.nbytes + 1, 2)):
        gradkern.torch.enable(devices="cpu", min_bytes=least, native=True)
        aten.embedding_dense_backward(*args)
        assert record.calls == taken


def test_a_tensor_without_elements_is_recognised_without_memory() -> None:
    """What cuDNN's batch norm puts aside is such a tensor where it needs nothing."""
    native = kernel_of("batch_norm_backward").override.native
    assert native is not None
    dy, x, scale, mean, inv_std = rows(2, 3, 4), rows(2, 3, 4), rows(3), rows(3), rows(3).abs()
    args = (dy, x, scale, None, None, mean, inv_std, True, 1e-5, [True] * 3, torch.empty(0, dtype=torch.uint8))
    cpu = torch.device("cpu")
    outputs = [Output(n, tuple(like.shape), like.stride(), like.dtype, cpu) for n, like in enumerate((x, scale, scale))]
    record = native.add(native.given(args, {}), Steps(outputs), x.nbytes, cpu)
    assert record is not None
    aten.batch_norm_backward(*args)
    assert record.calls == 1


def test_operators_that_machine_code_never_answers_stay_pythons_altogether() -> None:
    code = """
import torch, gradkern.torch
from gradkern.torch.overrides import switch
gradkern.torch.enable(devices="cpu", min_bytes=0, native=True, only_faster=False)
x = torch.randn(4, 8, 16, requires_grad=True)
def step():
    y = torch.nn.functional.layer_norm(x, (16,)) + torch.nn.functional.group_norm(x, 2) + torch.softmax(x.detach(), 1)
    y.square().sum().backward()
def registered():
    return [each.translation.name for each in switch._kernels() if each.override.native is not None]
step()
assert not registered()
gradkern.torch.tune(step)
for _ in range(3):
    step()
print(*registered(), *[(row.op, row.taken, row.natively, bool(row.by_python)) for row in gradkern.torch.report()])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    rows = "('native_layer_norm_backward', 3, 2, False) ('native_group_norm_backward', 3, 0, True)"
    assert done.stdout.strip() == f"native_layer_norm_backward {rows}", done.stderr


# --- calls that are left to PyTorch's kernel, as a C function ---------------------------------------------------------


def convolution(dim: int, transposed: bool, groups: int, mask: list[bool], bias: bool) -> Callable[[], Any]:
    x, w = rows(2, 4, *[7] * dim), rows(*((4, 8 // groups) if transposed else (8, 4 // groups)), *[3] * dim)
    dy = rows(2, 8, *[13 if transposed else 4] * dim)
    one = [1] * dim
    given = [8] if bias else None, [2] * dim, one, one, transposed, [0] * dim, groups, mask
    return lambda: aten.convolution_backward(dy, x, w, *given)


def by_pytorch(kernel: Kernel, calls: list[Callable[[], Any]]) -> list[Any]:
    assert kernel.override.remove()
    try:
        return [call() for call in calls]
    finally:
        kernel.override.install()


def leave(name: str) -> tuple[Kernel, Any]:
    """Leave all of an operator's calls to PyTorch's kernel."""
    kernel = kernel_of(name)
    native = kernel.override.native
    assert native is not None
    native.least(1 << 40)
    return kernel, native


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_convolutions_that_are_left_call_pytorchs_kernel_without_python(
    monkeypatch: pytest.MonkeyPatch, dim: int, transposed: bool
) -> None:
    kernel, native = leave("convolution_backward")
    masks = [[*mask] for mask in product((False, True), repeat=3)]
    cases = [(n, mask, bias) for n, mask, bias in product((1, 2), masks, (False, True)) if bias or not mask[2]]
    calls = [convolution(dim, transposed, *case) for case in cases]
    expected = by_pytorch(kernel, calls)
    before = native.small()
    monkeypatch.setattr(kernel.override, "_below", None)  # Python cannot answer
    for call, others in zip(calls, expected, strict=True):
        found = call()
        assert [each is None for each in found] == [each is None for each in others]
        assert all(one is None or torch.equal(one, other) for one, other in zip(found, others, strict=True))
    assert native.small() - before == len(calls)


def of_windows() -> dict[str, Callable[[], Any]]:
    image, volume = rows(2, 3, 8, 6), rows(2, 3, 8, 6, 4)
    two, indices = [2, 2], functional.max_pool2d(image, 2, return_indices=True)[1]
    three, indices3 = [2, 2, 2], functional.max_pool3d(volume, 2, return_indices=True)[1]
    half, half3 = rows(2, 3, 4, 3), rows(2, 3, 4, 3, 2)
    return {
        "max_pool2d_with_indices_backward": lambda: (half, image, two, two, [0, 0], [1, 1], False, indices),
        "max_pool3d_with_indices_backward": lambda: (half3, volume, three, three, [0] * 3, [1] * 3, False, indices3),
        "avg_pool2d_backward": lambda: (half, image, two, two, [0, 0], False, True, 3),
        "avg_pool3d_backward": lambda: (half3, volume, three, three, [0] * 3, False, True, None),
        "_adaptive_avg_pool2d_backward": lambda: (half, image),
        "upsample_bicubic2d_backward": lambda: (image, [8, 6], [2, 3, 4, 3], False, 2.0, None),
        "upsample_linear1d_backward": lambda: (rows(2, 3, 8), [8], [2, 3, 4], True, None),
    }


@pytest.mark.parametrize("name", of_windows())
def test_pools_and_upsampling_that_are_left_call_pytorchs_kernel_without_python(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kernel, native = leave(name)
    given = of_windows()[name]()

    def call() -> Any:
        return getattr(aten, name)(*given)

    (expected,), before = by_pytorch(kernel, [call]), native.small()
    monkeypatch.setattr(kernel.override, "_below", None)  # Python cannot answer
    assert torch.equal(call(), expected)
    assert native.small() == before + 1


def test_a_kernel_of_pytorchs_that_fails_raises_what_it_does_by_itself() -> None:
    kernel, _ = leave("convolution_backward")
    x, w, dy, one = rows(2, 4, 9, 9), rows(8, 4, 3, 3), rows(2, 8, 3, 3), [1, 1]

    def call() -> Any:
        return aten.convolution_backward(dy, x, w, [8], one, one, one, False, [0, 0], 1, [True] * 3)

    with pytest.raises(RuntimeError) as found:
        call()
    with pytest.raises(RuntimeError) as expected:
        by_pytorch(kernel, [call])
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_a_kernel_below_that_is_not_pytorchs_is_the_one_that_answers(native: None) -> None:
    kernel, machine_code = leave("convolution_backward")
    call = convolution(2, False, 1, [True] * 3, True)
    function = machine_code._block[words.BLOCK_FUNCTION]
    assert function
    seen = []

    def other(*args: Any) -> Any:
        seen.append(args)
        return args[1] * 0, args[2] * 0, args[2].new_zeros(8)

    assert kernel.override.remove()
    library = torch.library.Library("aten", "IMPL")
    library.impl("convolution_backward", other, "CPU", allow_override=True)
    kernel.override.install()
    try:
        assert not any(each.any() for each in call())
        assert len(seen) == 1
        assert machine_code._block[words.BLOCK_FUNCTION] == 0
    finally:
        assert kernel.override.remove()
        library._destroy()
        kernel.override.install()
    assert machine_code._block[words.BLOCK_FUNCTION] == function
    assert all(map(torch.equal, call(), by_pytorch(kernel, [call])[0]))


def test_convolutions_that_are_left_keep_no_memory() -> None:
    leave("convolution_backward")
    x, w, dy, one = rows(1, 512, 1, 1), rows(512, 512, 1, 1), rows(1, 512, 1, 1), [1, 1]
    given = [512], one, [0, 0], one, False, [0, 0], 1, [True] * 3

    def grown(calls: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(calls):
            aten.convolution_backward(dy, x, w.clone(), *given)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    grown(20)
    assert grown(400) < 100 << 10  # KB: those of 400 calls would be 800 MB
