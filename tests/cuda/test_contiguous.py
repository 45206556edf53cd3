"""Arrays that no kernel takes as they lie: which of them are copied, and the kernel that does it, compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda import contiguous, host_copies
from gradkern.cuda.contiguous import _BLOCKS, _SHARED, _THREADS, copy_arguments, wrap
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.policy import DEFAULT
from gradkern.strides import c_strides

SHAPE = (4, 32, 6, 5)
LAST = (32 * 30 * 2, 2, 32 * 5 * 2, 32 * 2)
FIRST = c_strides(SHAPE, 2)


class Stub:
    """Stands for the plan of a call whose arrays lie well."""

    kernel, scratch = "kernel", 0


def copied(taken: Callable[[Call], bool] = lambda _: True, **orders: tuple[int, ...]) -> str:
    """The kernel for arrays that lie so, where a kernel takes a call, or else copies in C order."""
    tensors = {name: Tensor(np.dtype(np.float16), SHAPE, strides, 16) for name, strides in orders.items()}
    scale = Tensor(np.dtype(np.float32), (32,), (4,), 16)
    outputs = {"dX": tensors["X"]}
    inputs = {**tensors, "Scale": scale}
    call = Call("BatchNormalizationGrad", inputs, outputs, {}, {}, frozenset(), "cuda:0", DEFAULT)

    def make(asked: Call) -> Any:
        return Stub() if taken(asked) else wrap(asked, make)

    with dry_run(DryRunDevice(0, (9, 0), 132, 232448)):
        found = wrap(call, make)
    return "" if found is None else found.kernel


def test_as_little_is_copied_as_makes_all_lie_alike() -> None:
    gaps = (FIRST[0] * 2, *FIRST[1:])
    assert copied(dY=FIRST, X=FIRST) == ""
    assert copied(dY=FIRST, X=LAST, dY2=LAST) == "kernel with copies of dY"
    assert copied(dY=LAST, X=LAST, dY2=FIRST) == "kernel with copies of dY2"
    assert copied(dY=LAST, X=FIRST) == "kernel with copies of dY"  # dX lies as X does
    assert copied(dY=gaps, X=LAST, dY2=LAST) == "kernel with copies of dY"
    assert copied(dY=gaps, X=gaps) == "kernel with copies of dY, X, dX"


def test_where_a_kernel_takes_c_order_alone_all_others_are_copied() -> None:
    def taken(asked: Call) -> bool:
        return all(each.strides == c_strides(each.shape, each.dtype.itemsize) for each in asked.inputs.values())

    assert copied(taken, dY=LAST, X=LAST, dY2=FIRST) == "kernel with copies of dY, X, dX"


class FakeDriver:
    """Memory from address 1000 on, and copies that are noted."""

    def __init__(self) -> None:
        self.copies: list[tuple[int, int]] = []
        self._next = 0

    def allocate(self, nbytes: int, stream: int) -> int:
        self._next += 1000
        return self._next

    def launch(self, addresses: tuple[int, int], stream: int) -> None:
        self.copies.append(addresses)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    driver = SimpleNamespace(
        cuMemAllocAsync=fake.allocate,
        cuMemFreeAsync=lambda address, stream: None,
        cuMemcpyHtoDAsync=lambda target, source, nbytes, stream: None,
        cuMemcpyDtoHAsync=lambda target, source, nbytes, stream: None,
        cuStreamSynchronize=lambda stream: None,
    )
    for module in (contiguous, host_copies):
        monkeypatch.setattr(module, "driver", driver)
        monkeypatch.setattr(module, "check", lambda answer, what: answer)
        monkeypatch.setattr(module, "activate", lambda device: nullcontext())
    monkeypatch.setattr(contiguous, "copy_launch", lambda source, target, device: fake.launch)
    monkeypatch.setattr(contiguous, "device_of", lambda call: None)
    monkeypatch.setattr(host_copies, "get_device", lambda index: None)
    return fake


class Noting:
    """A plan that notes what it is executed with."""

    kernel, scratch = "noting", 0

    def __init__(self, call: Call) -> None:
        self.call = call

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], stream: Any) -> None:
        self.executed = inputs, outputs


def in_place_call(device: str, strides: tuple[int, ...]) -> Call:
    """X is written over by Y, as an alias is; Z is an output of its own. A number stands behind the arrays."""
    tensor = Tensor(np.dtype(np.float16), SHAPE, strides, 16)
    outputs = {"Z": tensor, "Y": tensor}
    pairs = frozenset([("X", "Y")])
    return Call("", {"W": tensor, "X": tensor}, outputs, {}, {}, pairs, device, DEFAULT, {"ratio": "float32"})


def test_copies_of_an_array_that_is_written_over_are_one_copy(fake: FakeDriver) -> None:
    call = in_place_call("cuda:0", (FIRST[0] * 2, *FIRST[1:]))
    plan: Any = contiguous.Gathered(call, ("W", "X", "Z", "Y"), (), Noting)
    assert plan.plan.call.in_place == {("X", "Y")}
    plan((1, 2, 0.5), (3, 2), 0)
    assert plan.plan.executed == ((1000, 2000, 0.5), (3000, 2000))
    assert fake.copies == [(1, 1000), (2, 2000), (3000, 3), (2000, 2)]
    alone: Any = contiguous.Gathered(call, ("Z",), (), Noting)
    assert alone.plan.call.in_place == {("X", "Y")}
    alone((1, 2, 0.5), (3, 2), 0)
    assert alone.plan.executed == ((1, 2, 0.5), (4000, 2))


def test_a_host_array_that_is_written_over_is_one_on_the_device(fake: FakeDriver) -> None:
    X, W, Z = (np.zeros(SHAPE, np.float16) for _ in range(3))
    plan: Any = host_copies.wrap(in_place_call("cpu", FIRST), Noting)
    assert plan._plan.call.in_place == {("X", "Y")}
    plan((W, X, 0.5), (Z, X), None)
    assert plan._plan.executed == ((1000, 2000, 0.5), (3000, 2000))
    assert plan.scratch == 3 * X.nbytes


def test_an_array_of_more_axes_than_the_kernel_has_is_refused() -> None:
    for axes in (8, 9):
        shape, apart = (2,) * axes, c_strides((3,) * axes, 4)
        source, target = (Tensor(np.dtype("float32"), shape, each, 16) for each in (c_strides(shape, 4), apart))
        with pytest.raises(Refusal, match="8 axes") if axes > 8 else nullcontext():
            copy_arguments(source, target)


@pytest.mark.parametrize("changes", [{"alignment": 2}, {"strides": (34, 4)}])
def test_elements_that_no_access_is_aligned_to_are_refused(changes: dict[str, Any]) -> None:
    whole = Tensor(np.dtype(np.float32), (6, 8), (32, 4), 16)
    for pair in ((whole, whole._replace(**changes)), (whole._replace(**changes), whole)):
        with pytest.raises(Refusal, match="no multiple of 4"):
            copy_arguments(*pair)


def test_rows_from_the_last_to_the_first_are_rows() -> None:
    source, target = (Tensor(np.dtype(np.float32), (6, 8), (step, 4), 16) for step in (32, -32))
    for one, other in ((source, target), (target, source)):
        (_, turned, read, written, _), *_ = copy_arguments(one, other)
        assert (turned, read, written) == (False, 4, 4)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "shape", [(2, 96, 112, 112), (2, 1152, 7, 7), (2, 3, 224, 224), (1, 144, 56, 56), (9, 130, 2, 3)]
)
def test_a_turned_tile_has_whole_accesses_and_fits_its_memory(shape: tuple[int, ...], size: int) -> None:
    batch, channels, *positions = shape
    first = c_strides(shape, size)
    last = (first[0], size, positions[1] * channels * size, channels * size)
    tensors = [Tensor(np.dtype(f"uint{8 * size}"), shape, each, 16) for each in (first, last)]
    for source, target in (tensors, tensors[::-1]):
        (_, turned, read, written, _), tiles, arguments = copy_arguments(source, target)
        rows, columns, high, wide, _, _, _, _, pitch, group = arguments[2:12]
        assert turned
        assert {rows, columns} == {channels, positions[0] * positions[1]}
        assert tiles == batch * -(-rows // high) * -(-columns // wide)
        assert rows % read == high % read == columns % written == wide % written == 0
        assert wide * size <= pitch
        assert pitch % (written * size) == 0
        assert high // read * group <= _SHARED


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [(("float16", True, 8), HOPPER[0])],
        product(
            [*product(("bool", "float16", "float32", "float64"), (True, False), (8, 7)), ("float16", True, 4)],
            [*HOPPER, *OTHERS],
        ),
    ),
)
def test_no_register_is_spilled(kind: tuple[str, bool, int], capability: tuple[int, int]) -> None:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.cuda.device_code.strided_copy import build

    dtype, turned, side = kind
    shape, size = (4, side * side, side, side), np.dtype(dtype).itemsize
    first = c_strides(shape, size)
    last = (first[0], size, side**3 * size, side**2 * size)
    gaps = (first[0] * 2, *first[1:])
    source, target = (Tensor(np.dtype(dtype), shape, each, 16) for each in (last if turned else gaps, first))
    constants, _, arguments = copy_arguments(source, target)
    assert constants[:2] == (size, turned)
    width = {8: 16 // size, 7: 1, 4: 16 // size}[side]
    assert constants[2:4] == (width, width)
    made = compile_kernel(build(*constants), len(arguments), capability, _THREADS, _BLOCKS)
    assert made.spilled == 0
    assert ".local" not in made.ptx
    assert ("bar.sync" in made.ptx) == turned
    if width * size == 16:
        assert "ld.global.v4.b32" in made.ptx
        assert "st.global.v4.b32" in made.ptx
