"""Toy operators as torch.ops: PyTorch's own check of schema and fake tensors, and what runs at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.toys import TOYS, toy_arguments, toys

torch = pytest.importorskip("torch")

from gradkern.torch import direct, operators  # noqa: E402
from gradkern.torch.direct import Direct  # noqa: E402

__all__ = ["toys"]

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("toys")]
CASES = [(name, number) for name, operator in TOYS.items() for number in range(len(operator.examples))]


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """torch.ops.toys, made as torch.ops.gradkern is."""
    library = torch.library.Library("toys", "DEF")
    for name, operator in TOYS.items():
        library.define(operators.schema_of(name, operator))
        library.impl(name, operators._kernel(name, operator), "CPU")
        torch.library.register_fake(f"toys::{name}", operators._fake(name, operator), lib=library)
    yield torch.ops.toys
    library._destroy()


def arguments(name: str, number: int = 0) -> tuple[list[Any], dict[str, Any]]:
    """Tensors in contract order, and the rest by name."""
    operator = TOYS[name]
    given = toy_arguments(name, operator.examples[number])
    names = [each.name for each in operators.tensors_of(operator) if each.name in given]
    tensors = [torch.from_numpy(np.asarray(given.pop(each), "f4" if each == "scale" else None)) for each in names]
    return tensors, {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


@pytest.mark.parametrize(("name", "number"), CASES)
def test_schema_and_fake_results_are_as_pytorch_finds_them(library: Any, name: str, number: int) -> None:
    tensors, named = arguments(name, number)
    torch.library.opcheck(
        getattr(library, name).default, tuple(tensors), named, test_utils=("test_schema", "test_faketensor")
    )


def test_an_alias_is_a_copy_in_what_is_functional(library: Any) -> None:
    total, value = torch.ones(3), torch.ones(3, dtype=torch.float16)
    assert library.InPlaceAccumulator(total, value).tolist() == [2] * 3
    assert total.tolist() == [1] * 3


def test_the_schema_has_numbers_and_lists_for_inputs_on_the_host() -> None:
    schema = {name: operators.schema_of(name, operator) for name, operator in TOYS.items()}
    assert schema["GatherGrad"].startswith(
        "GatherGrad(Tensor indices, Tensor dY, Tensor? tied=None, *, int[] shape, int axis=0"
    )
    dropout = schema["SoftmaxDropoutGrad"]
    assert "float ratio=0.5" in dropout
    assert "bool? training_mode=None" in dropout
    assert "float[]? scales=None" in schema["ScaledSum"]


@pytest.mark.parametrize("compiling", [False, True])
def test_an_operator_that_is_called_at_once_takes_its_host_inputs_as_attributes(
    library: Any, compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "is_eager", lambda: not compiling)
    monkeypatch.setattr(torch.ops, "gradkern", library)
    gather = Direct("GatherGrad", ("dX",))
    dY, indices = torch.arange(12.0).reshape(4, 3), torch.tensor([0, -1, 4, 0])
    for shape in ((5, 3), (6, 3)):
        (dX,) = gather((True,), (None, indices, dY), (("shape", shape),))
        expected = run_any("GatherGrad", shape, indices, dY).dX
        assert torch.equal(dX, expected)
    dropout = Direct("SoftmaxDropoutGrad", ("dx",))
    dy, mask = torch.ones(2, 3), torch.tensor([[True, False, True]] * 2)
    for mode in (True, False):
        named = {"axis": 1, "ratio": 0.25, "training_mode": mode}
        (dx,) = dropout((True,), (dy, mask, dy / 3), tuple(named.items()))
        assert torch.equal(dx, run_any("SoftmaxDropoutGrad", dy, mask, dy / 3, **named).dx)


def test_an_alias_is_the_tensor_itself_in_what_is_called_at_once() -> None:
    add = Direct("InPlaceAccumulator", ("new_sum",))
    total = torch.ones(3)
    assert add((True,), (total, torch.ones(3)))[0] is total
    assert total.tolist() == [2] * 3
