"""torch.compile(model, backend="gradkern"): small tables of costly functions are computed once."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import gradkern.torch  # noqa: F401  registers the backend
from gradkern.torch.compile_backend.gates import gates_of
from gradkern.torch.compile_backend.inductor_graphs import each_graph

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]
LENGTH, HALF, HEADS = 4, 4, 8


def rotated(x: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rotary position embeddings of [..., length, features], from positions and rates on."""
    rates = 10000.0 ** (-torch.arange(HALF) / HALF)
    angles = torch.arange(x.shape[-2])[:, None] * rates
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    one, other = x.chunk(2, -1)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)


def stored(function: Callable[..., Any], *inputs: torch.Tensor, gates: Any = True) -> list[str]:
    """What `keep` has Inductor store of the function's graph, by the names of its operators."""
    from torch._inductor.decomposition import select_decomp_table

    graph = make_fx(function, select_decomp_table(), "fake")(*inputs).graph
    each_graph.keep_tables(graph, gates_of(gates))
    marked = [node for node in graph.nodes if node.meta.get("inductor_realize_to_strides")]
    return sorted(str(node.target).split(".")[1] for node in marked)


def heads() -> torch.Tensor:
    return torch.randn(2, HEADS, LENGTH, 2 * HALF, generator=torch.Generator().manual_seed(1))


def test_the_tables_of_rotary_embeddings_are_stored() -> None:
    assert stored(lambda x: rotated(x), heads()) == ["cos", "sin"]


def test_tables_are_stored_in_the_type_in_which_they_are_read() -> None:
    assert stored(lambda x: rotated(x, torch.bfloat16), heads().bfloat16()) == ["convert_element_type"] * 2


def test_tables_of_a_rotated_product_are_stored_where_they_are_put_together() -> None:
    """As transformers has them: angles side by side, from a product of rates and positions."""

    def function(x: torch.Tensor, rates: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        angles = (rates[None, :, None].expand(2, -1, 1) @ positions[:, None, :].float()).transpose(1, 2)
        both = torch.cat((angles, angles), -1)
        turned = torch.cat((-x[..., HALF:], x[..., :HALF]), -1)
        return x * both.cos()[:, None] + turned * both.sin()[:, None]

    positions = torch.arange(LENGTH)[None].expand(2, -1)
    assert stored(function, heads(), torch.rand(HALF), positions) == ["cos", "sin"]


def test_a_table_that_a_view_shows_is_stored_and_not_the_view() -> None:
    assert stored(lambda x, y: x * y.tan().view(1, 4, 1, 1), torch.ones(9, 4, 2, 2), torch.ones(4)) == ["tan"]


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x, y: x * y.cos(), (16, 16)),  # is read by one element each
        (lambda x, y: x * (y + 1), (1,)),  # is cheap
        (lambda x, y: x * y**2, (1,)),
        (lambda x, y: x * x.sum(-1, keepdim=True).cos(), (1,)),  # ends a reduction
        (lambda x, y: x.log_softmax(-1), (1,)),
        (lambda x, y: y.cos(), (16,)),  # is no table
        (lambda x, y: x @ y.cos(), (16, 16)),  # is stored anyway
    ],
)
def test_other_functions_are_left_alone(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    assert stored(function, torch.ones(16, 16), torch.ones(shape)) == []


@pytest.mark.parametrize(
    ("gates", "expected"), [(False, []), (1 << 30, []), (2048, ["convert_element_type"] * 2), (2049, [])]
)
def test_what_reads_a_table_must_be_large(gates: Any, expected: list[str]) -> None:
    """Half of the features of 2 x 8 heads of 4 positions, 8 bytes each, are 2048 bytes."""
    wide = heads().double()
    assert stored(lambda x: rotated(x, torch.float64), wide, gates={"broadcast tables": gates}) == expected


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2 * HALF, 2 * HALF), nn.Linear(2 * HALF, 2 * HALF)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rotated(self.other(rotated(self.one(x)).sigmoid()))


@pytest.mark.parametrize(("asked", "count"), [(True, 1), (False, 2)])
def test_compiled_code_has_them_once_and_gradients_are_eagers(asked: bool, count: int) -> None:
    from torch._inductor.utils import run_and_get_code

    torch.manual_seed(0)
    model = Rotary()
    eager, x = copy.deepcopy(model), heads()
    eager(x).sin().mean().backward()
    options: Any = {"gradkern": {"broadcast tables": asked}}
    compiled = torch.compile(model, backend="gradkern", options=options)
    _, codes = run_and_get_code(lambda: compiled(x).sin().mean().backward())
    assert [len(re.findall(r"\bstd::cos|\.cos\(", code)) for code in codes] == [count, count]
    for found, expected in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-5, atol=1e-7)
