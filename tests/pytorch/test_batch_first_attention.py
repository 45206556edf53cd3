"""torch.compile(backend="gradkern") and nn.MultiheadAttention with the batch first."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import rewritten
from helpers.models import torchvision
from helpers.rewritten import EXACT, reasons, step
from torch import nn
from torch.nn import functional

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

BATCH, LENGTH, WIDTH, HEADS = 3, 6, 8, 2
Tensor = torch.Tensor
Attend = Callable[[nn.Module, Tensor], Tensor]
MASK = torch.randn(LENGTH, LENGTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
HEADS_MASK = torch.randn(BATCH * HEADS, LENGTH, LENGTH, dtype=torch.float64)
PADDED = torch.arange(LENGTH).expand(BATCH, -1) > torch.tensor([[3], [5], [2]])
ADDED = torch.zeros(BATCH, LENGTH, dtype=torch.float64).masked_fill(PADDED, float("-inf"))
CAUSAL = torch.full((LENGTH, LENGTH), float("-inf"), dtype=torch.float64).triu(1)


def attended(**options: Any) -> Attend:
    """Self-attention with these options of the call."""
    return lambda attention, x: attention(x, x, x, **{"need_weights": False, **options})[0]


class Layers(nn.Module):
    """Two layers of a transformer with norms first, and a norm. As torchvision's, sums begin with what attention gives:
    they have its order in memory.
    """

    def __init__(self, attend: Attend, end: Callable[..., Any] | None = None, **options: Any) -> None:
        super().__init__()
        options = {"batch_first": True, **options}
        self.attend, self.end = attend, end
        self.attentions = nn.ModuleList([nn.MultiheadAttention(WIDTH, HEADS, **options) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])

    def forward(self, x: Tensor) -> Any:
        for attention, norm in zip(self.attentions, self.norms, strict=False):
            x = self.attend(attention, norm(x)) + x
        y = self.norms[-1](x)
        return y if self.end is None else self.end(x, y)


def compiled(model: nn.Module) -> tuple[Any, list[Any]]:
    """The model with the first stage's graph, and a list that gets what calls PyTorch's function for attention there,
    or is attention's own.
    """
    kinds = functional.multi_head_attention_forward, functional.scaled_dot_product_attention
    return rewritten.compiled(model, lambda graph: [each.target for each in graph.nodes if each.target in kinds])


X = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
TAKEN: dict[str, tuple[Attend, dict[str, Any]]] = {
    "plain": (attended(), {}),
    "without biases": (attended(), {"bias": False}),
    "with dropout": (attended(), {"dropout": 0.4}),
    "with an added mask": (attended(attn_mask=MASK), {}),
    "with a mask of truth values": (attended(attn_mask=CAUSAL.bool()), {}),
    "with a mask for each head": (attended(attn_mask=HEADS_MASK), {}),
    "with padding": (attended(key_padding_mask=PADDED), {}),
    "with padding and a mask": (attended(key_padding_mask=ADDED, attn_mask=CAUSAL, is_causal=True), {}),
    "with padding and a mask for each head": (attended(key_padding_mask=ADDED, attn_mask=HEADS_MASK), {}),
    "causal": (attended(attn_mask=CAUSAL, is_causal=True), {}),
}


@pytest.mark.parametrize("name", TAKEN)
def test_results_gradients_and_random_numbers_are_eagers(name: str) -> None:
    attend, options = TAKEN[name]
    model = Layers(attend, **options).double()
    torch.manual_seed(0)
    eager, state = step(model, model, X), torch.get_rng_state()
    run, left = compiled(model)
    torch.manual_seed(0)
    torch.testing.assert_close(step(model, run, X), eager, **EXACT)
    assert torch.equal(torch.get_rng_state(), state)
    assert left == [functional.scaled_dot_product_attention] * 2
    assert reasons("batch-first attention") == ["", ""]
    assert reasons("add + ") == ["", ""]


def test_under_autocast_it_rounds_as_eager_does() -> None:
    model = Layers(attended())
    exact = step(double := copy.deepcopy(model).double(), double, X)
    eager = step(model, model, X.float(), half=True)
    run, left = compiled(model)
    found = step(model, run, X.float(), half=True)
    assert left == [functional.scaled_dot_product_attention] * 2
    assert reasons("add + ") == ["", ""]
    for name, each in eager.items():
        assert (found[name].dtype, found[name].stride()) == (each.dtype, each.stride())
        bound = 1.5 * (each - exact[name]).norm() + 2e-3 * exact[name].norm()
        assert (found[name] - exact[name]).norm() <= bound, name


def test_one_graph_serves_every_batch() -> None:
    model = Layers(attended()).double()
    run, left = compiled(model)
    for x in (X, torch.cat([X, X.sin()])):
        torch.testing.assert_close(step(model, run, x, any_batch=True), step(model, model, x), **EXACT)
    assert left == [functional.scaled_dot_product_attention] * 2


def of_another(attention: nn.Module, x: Tensor) -> Tensor:
    return attention(x, x.flip(1), x.flip(1), need_weights=False)[0]


def of_functions(attention: Any, x: Tensor) -> Tensor:
    """PyTorch's function itself, whose mask may be one of truth values."""
    x = x.transpose(0, 1)
    given = attention.in_proj_weight, attention.in_proj_bias, None, None, False, 0.0
    out = attention.out_proj.weight, attention.out_proj.bias
    mask = CAUSAL.bool()
    y = functional.multi_head_attention_forward(x, x, x, WIDTH, HEADS, *given, *out, need_weights=False, attn_mask=mask)
    return y[0].transpose(0, 1)


def with_its_weights(attention: nn.Module, x: Tensor) -> Tensor:
    y, weights = attention(x, x, x)
    return y * weights.sum()


LEFT: dict[str, tuple[Attend, dict[str, Any], Callable[..., Any] | None, list[str]]] = {
    "of something else": (of_another, {}, None, []),
    "weights that are used": (with_its_weights, {}, None, []),
    "weights that are wanted": (attended(need_weights=True), {}, None, ["its weights are wanted"] * 2),
    "a mask of truth values": (of_functions, {}, None, ["its mask is not added"] * 2),
    "a key for all": (attended(), {"add_bias_kv": True}, None, ["it attends to more than its input"] * 2),
    "a key of zeros": (attended(), {"add_zero_attn": True}, None, ["it attends to more than its input"] * 2),
    "a stream that is a result": (
        *(attended(), {}, lambda x, y: (x, y)),
        ["", "what follows has the order in memory that it gives"],
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_attention_stays_as_it_is(name: str) -> None:
    attend, options, end, expected = LEFT[name]
    model = Layers(attend, end, **options).double()
    eager = step(model, model, X)
    run, left = compiled(model)
    found = step(model, run, X)
    torch.testing.assert_close(found, eager, **EXACT)
    assert {name: each.stride() for name, each in found.items()} == {name: y.stride() for name, y in eager.items()}
    assert left[-1] is functional.multi_head_attention_forward
    assert reasons("batch-first attention") == expected


def test_sequences_first_stay_as_they_are() -> None:
    model = Layers(attended(), batch_first=False).double()
    eager = step(model, model, X)
    run, left = compiled(model)
    torch.testing.assert_close(step(model, run, X), eager, **EXACT)
    assert left == [functional.multi_head_attention_forward] * 2


@pytest.mark.models
def test_every_sum_of_torchvisions_transformer_is_taken() -> None:
    sizes = {"image_size": 8, "patch_size": 4, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32}
    model = torchvision().models.VisionTransformer(**sizes, num_classes=5).double()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    eager = step(model, model, x)
    run, _ = compiled(model)
    torch.testing.assert_close(step(model, run, x), eager, **EXACT)
    assert reasons("add + ") == [""] * 4


@pytest.mark.parametrize("norm_first", [False, True])
def test_every_sum_of_pytorchs_layers_is_taken(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True, norm_first=norm_first, dropout=0.0)
    model = nn.Sequential(layer, copy.deepcopy(layer), nn.LayerNorm(WIDTH)).double()
    eager = step(model, model, X)
    run, _ = compiled(model)
    torch.testing.assert_close(step(model, run, X), eager, **EXACT)
    assert reasons("batch-first attention") == ["", ""]
    assert reasons("add + ").count("") == 4
