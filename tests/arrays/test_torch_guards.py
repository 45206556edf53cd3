"""Plain tensors are told from those that need a closer look, by their attributes and by PyTorch's guard alike.

The readers ask no tensor where it is: that they are asked for tensors on a GPU only is gradkern.dispatch's business.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from gradkern.arrays import torch_guards
from gradkern.arrays.torch_guards import Guard, alignment, guard_of, of_tensors
from gradkern.arrays.view import view
from gradkern.errors import ArgumentError

pytestmark = pytest.mark.torch


def pair(torch: Any) -> tuple[Any, Any]:
    """Two plain tensors, that a guard recognises."""
    made = torch.randn(4, 8), torch.randn(8)
    read(made)
    return made


def read(values: tuple[Any, ...]) -> Any:
    """Of plain tensors: their keys, their addresses and where they are."""
    found = of_tensors(values)
    assert found is not None
    return found


def guard_for(values: tuple[Any, ...]) -> Guard:
    found = guard_of(values)
    assert found is not None
    assert found.addresses(values) == tuple(each.data_ptr() for each in values)
    return found


def test_tensors_like_those_read_before_have_equal_keys_and_their_own_addresses() -> None:
    import torch

    guard = guard_for(pair(torch))
    one, other = (torch.randn(4, 8), torch.randn(8)), (torch.randn(64)[32:].view(4, 8), torch.randn(8))
    (keys, addresses, index), (again, others, _) = read(one), read(other)
    assert keys == again
    assert addresses == tuple(each.data_ptr() for each in one)
    assert others == tuple(each.data_ptr() for each in other)
    assert index == -1
    assert (guard.addresses(one), guard.addresses(other)) == (addresses, others)


def test_what_a_plan_depends_on_is_in_the_key() -> None:
    import torch

    x, y = pair(torch)
    guard = guard_for((x, y))
    wide = torch.randn(4, 9)
    others = [
        (x.double(), y),
        (x.bfloat16(), y),
        (torch.randn(5, 8), y),
        (torch.randn(8, 4).t(), y),
        (wide[:, :8], y),
        (wide.view(-1)[1:33].view(4, 8), y),
        (wide.view(-1)[2:34].view(4, 8), y),
        (x, torch.randn(9)),
    ]
    found = [of_tensors(each) for each in ((x, y), (x, y, y), *others)]
    assert all(found)
    keys = [each[0] for each in found if each]
    assert len(set(keys)) == len(keys)
    assert [guard.addresses(each) for each in others] == [None] * len(others)


def sparse(torch: Any) -> Any:
    return torch.randn(4, 8).to_sparse()


def without_storage(torch: Any) -> Any:
    value = torch.randn(4, 8)
    value.untyped_storage().resize_(0)
    return value


class Odd:
    """How tensors are made that look like the ones read before, and are not."""

    parameter = staticmethod(lambda torch: torch.nn.Parameter(torch.randn(4, 8)))
    frozen_parameter = staticmethod(lambda torch: torch.nn.Parameter(torch.randn(4, 8), requires_grad=False))
    requires_grad = staticmethod(lambda torch: torch.randn(4, 8, requires_grad=True))
    subclass = staticmethod(lambda torch: torch.randn(4, 8).as_subclass(type("Subclass", (torch.Tensor,), {})))
    negative_view = staticmethod(lambda torch: torch._neg_view(torch.randn(4, 8)))
    zero_by_definition = staticmethod(lambda torch: torch._efficientzerotensor(4, 8))
    functional = staticmethod(lambda torch: torch._to_functional_tensor(torch.randn(4, 8)))
    elsewhere = staticmethod(lambda torch: torch.empty(4, 8, device="meta"))
    sparse = staticmethod(sparse)
    without_storage = staticmethod(without_storage)
    empty = staticmethod(lambda torch: torch.empty(0, 8))
    number = staticmethod(lambda torch: 1.0)
    nothing = staticmethod(lambda torch: None)


@pytest.mark.parametrize("kind", [each for each in vars(Odd) if not each.startswith("_")])
def test_anything_but_a_plain_tensor_needs_a_closer_look(kind: str) -> None:
    import torch

    x, _ = pair(torch)
    guard = guard_for((x, torch.randn(4, 8)))
    odd = getattr(Odd, kind)(torch)
    taken = {"frozen_parameter": {True, False}, "parameter": {False}, "requires_grad": {False}}.get(kind, set())
    for recording in (True, False):
        with torch.set_grad_enabled(recording):
            assert guard.addresses((x, odd)) is None
            for found in (of_tensors((x, odd)), guard_of((x, odd))):
                assert (found is not None) == (recording in taken)


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_tensors_of_a_function_transform_need_a_closer_look(transform: str) -> None:
    import torch

    x, _ = pair(torch)
    guard = guard_for((x, x.clone()))

    def look(value: Any) -> Any:
        assert of_tensors((x, value)) is None
        assert guard.addresses((x, value)) is None
        return value.sum()

    calls: dict[str, Callable[[], Any]] = {
        "vmap": lambda: torch.func.vmap(look)(torch.randn(3, 4, 8)),
        "grad": lambda: torch.func.grad(look)(x),
    }
    calls[transform]()


@pytest.mark.parametrize("kind", ["zero_by_definition", "functional", "without_storage"])
def test_a_tensor_without_memory_is_refused_in_words(kind: str) -> None:
    import torch

    pair(torch)
    with pytest.raises(ArgumentError, match="ConvGrad: input W is a tensor without memory"):
        view(getattr(Odd, kind)(torch), "ConvGrad: input W")


@pytest.mark.parametrize("order", ["contiguous", "strided", "of a slice"])
def test_a_tensor_that_is_cut_off_is_refused_in_words(order: str) -> None:
    """Its storage was resized, as sharded parameters' are, below what its shape needs."""
    import torch

    x, _ = pair(torch)
    tensor = {"contiguous": torch.randn(4, 8), "strided": torch.randn(8, 4).t(), "of a slice": torch.randn(9, 8)[5:]}
    value = tensor[order]
    storage = value.untyped_storage()
    size = storage.nbytes()
    assert of_tensors((x, value)) is not None
    storage.resize_(size - 1)
    assert of_tensors((x, value)) is None
    text = rf"^GELU: input X is a tensor of shape \(4, 8\) whose storage was resized to {size - 1} bytes; expected all"
    with pytest.raises(ArgumentError, match=text):
        view(value, "GELU: input X")
    storage.resize_(size)
    assert view(value, "GELU: input X").tensor.shape == (4, 8)


def test_one_tensor_given_twice_is_read() -> None:
    import torch

    x, _ = pair(torch)
    keys, addresses, _ = read((x, x))
    assert keys[0] == keys[1]
    assert addresses[0] == addresses[1]
    assert guard_of((x, x)) is None


def test_no_tensor_is_kept_alive() -> None:
    import torch

    x, y = pair(torch)
    guard = guard_for((x, y))
    dead = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [each() for each in dead] == [None, None]
    assert guard.addresses(pair(torch)) is not None


def test_a_guard_that_lets_pass_what_it_must_not_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def check(self, *_: Any) -> bool:
            return True

    find = torch_guards.tensor_guards.__wrapped__
    guards: Any = import_module("torch._C._dynamo.guards")  # it has no types
    assert find() is guards.TensorGuards
    monkeypatch.setattr(guards, "TensorGuards", Careless)
    assert find() is None


def test_within_an_operator_of_compiled_code_there_are_guards_too() -> None:
    """Where the dispatch keys are others."""
    import torch

    found: list[bool] = []
    negated: Any = torch._neg_view  # pyright: ignore[reportPrivateImportUsage]

    def kernel(x: Any) -> Any:
        guard = guard_of((x,))
        found.append(torch_guards.tensor_guards.__wrapped__() is not None)
        found.append(guard is not None and guard.addresses((negated(x),)) is None)
        return x.clone()

    library = torch.library.Library("gradkern_guards", "DEF")
    library.define("read(Tensor x) -> Tensor")
    library.impl("read", kernel, "CPU")
    torch.library.register_fake("gradkern_guards::read", torch.empty_like, lib=library)
    x = torch.randn(4, 8, requires_grad=True)
    torch.compile(lambda x: torch.ops.gradkern_guards.read(x.detach()) * x, backend="aot_eager")(x).sum().backward()
    assert found == [True, True]


def test_without_a_guard_no_tensors_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch_guards, "tensor_guards", lambda: None)
    assert guard_of(pair(torch)) is None


@pytest.mark.parametrize(("address", "expected"), [(0, 16), (1 << 40, 16), (24, 8), (20, 4), (6, 2), (7, 1)])
def test_alignment_is_the_power_of_two_that_divides_an_address(address: int, expected: int) -> None:
    assert alignment(address) == expected


def test_tensors_that_were_changed_after_they_were_read_have_no_guard() -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros(20, 30)
    keys, *_ = of_tensors((x,))  # pyright: ignore[reportGeneralTypeIssues]
    assert guard_of((x,), keys) is not None
    x.resize_(30, 20)
    assert guard_of((x,), keys) is None
    assert guard_of((x,)) is not None
