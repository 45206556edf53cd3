"""torch.compile(model, backend="gradkern"): attention with masks that are known when the graph is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.models import MODELS
from torch.nn import functional

import gradkern.torch
from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

LENGTH = 6
Tensor = torch.Tensor
Mask = Callable[[Tensor], Any]


def reasons(mask: Mask, *inputs: Tensor, gates: Any = True, dynamic: bool = False, keys: int = LENGTH) -> list[str]:
    """Why attention with this mask is left as it is; "" where it was rewritten. Results and gradients stay the same."""
    attended: list[Any] = []

    def backend(graph_module: Any, given: Any) -> Any:
        from torch._dynamo.backends.debugging import aot_eager

        rewrite(graph_module, gates_of(gates))
        attention = functional.scaled_dot_product_attention
        calls = graph_module.graph.find_nodes(op="call_function", target=attention)
        attended.extend((call.kwargs.get("attn_mask"), call.kwargs.get("is_causal")) for call in calls)
        return aot_eager(graph_module, given)

    def attend(q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(*(more or (q,))), is_causal=False)

    random = torch.Generator().manual_seed(1)
    lengths = LENGTH, keys, keys
    qkv = [torch.randn(2, 3, each, 4, dtype=torch.float64, generator=random, requires_grad=True) for each in lengths]
    findings.clear()
    y = torch.compile(attend, backend=backend, dynamic=dynamic)(*qkv, *inputs)
    expected = attend(*qkv, *inputs)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad(each.sin().sum(), qkv) for each in (y, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    found = [each.reason for each in findings.findings() if each.fusion == "causal attention"]
    for (given, causal), reason in zip(attended, found, strict=False):
        assert (given is None) == (not reason)
        assert not (causal and reason)
    return found


def positions() -> Tensor:
    return torch.arange(LENGTH)


def at_most(q: Tensor) -> Tensor:
    return positions()[None, :] <= positions()[:, None]


def packed(q: Tensor) -> Tensor:
    """As transformers has it, which looks for several texts in a row of positions."""
    ids = positions()[None].expand(2, -1)
    begins = (torch.diff(ids, prepend=ids[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    batch = torch.arange(2)[:, None, None, None]
    query, key = positions()[None, None, :, None], positions()[None, None, None, :]
    same = begins[batch, query].__eq__(begins[batch, key])  # as Dynamo of PyTorch 2.11 has every such comparison
    return (query.new_ones((), dtype=torch.bool) & (key <= query) & same).expand(2, -1, LENGTH, LENGTH)


@pytest.mark.parametrize(
    "mask",
    [
        at_most,
        packed,
        lambda q: torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(),
        lambda q: ~torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1),
        lambda q: at_most(q)[None, None].expand(2, 3, -1, -1),
        lambda q: torch.full((LENGTH, LENGTH), True),
        lambda q: torch.ones(2, 1, 1, LENGTH, dtype=torch.bool),
    ],
)
def test_a_mask_of_positions_alone_that_is_causal_or_masks_nothing_is_left_out(mask: Mask) -> None:
    assert reasons(mask) == [""]


ANOTHER, INPUTS = "its mask is another one", "its mask depends on inputs"


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (lambda q: at_most(q) & (positions()[:, None] - positions()[None, :] < 3), ANOTHER),  # a sliding window
        (lambda q: at_most(q) | (positions()[None, :] < 2), ANOTHER),  # of a prefix
        (lambda q: positions()[None, :] >= positions()[:, None], ANOTHER),
        (lambda q: torch.ones(1, LENGTH, dtype=torch.bool).tril(), ANOTHER),
        (lambda q: torch.where(at_most(q), 0.0, float("-inf")).double(), "its mask is added"),
        (lambda q: at_most(q) & (q[:, :1, :1, :1] < 9), INPUTS),
        (lambda q: at_most(q) & (torch.rand(LENGTH, LENGTH) < 2), INPUTS),
    ],
)
def test_other_masks_stay(mask: Mask, reason: str) -> None:
    assert reasons(mask) == [reason]


def test_a_mask_of_padding_stays() -> None:
    padding = torch.ones(2, LENGTH, dtype=torch.bool)
    padding[0, 4:] = False
    assert reasons(lambda given: at_most(given) & given[:, None, None, :], padding) == [INPUTS]


def test_a_mask_that_is_written_into_stays() -> None:
    def written(q: Tensor) -> Tensor:
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        mask[:, 0] = False
        mask[0, 0] = True
        return mask

    def written_where_it_comes_from(q: Tensor) -> Tensor:
        before = positions()
        mask = before[None, :] <= before[:, None]
        before.add_(1)
        later = before.clone()
        return mask & (later[None, :] <= before[:, None])

    assert reasons(written) == ["its mask is written into"]
    assert reasons(written_where_it_comes_from) == ["its mask is written into"]


def test_fewer_keys_than_queries_keep_a_causal_mask_and_lose_one_that_masks_nothing() -> None:
    keys = LENGTH - 2
    causal = lambda q: torch.ones(keys, keys, dtype=torch.bool).tril()[-1:]  # noqa: E731
    assert reasons(causal, keys=keys) == [""]  # the last row masks nothing
    assert reasons(lambda q: torch.ones(LENGTH, keys, dtype=torch.bool).tril(), keys=keys) == [ANOTHER]


def test_sizes_that_are_open_and_a_switch_keep_it() -> None:
    (reason,) = reasons(lambda q: torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril(), dynamic=True)
    assert reason in (INPUTS, "the size of its mask is open, or too large to compute it here")
    assert reasons(at_most, gates={"causal attention": False}) == ["switched off"]


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.models
@pytest.mark.parametrize("name", ["transformers GPT2", "transformers Llama"])
def test_transformers_mask_of_a_compiled_model_is_left_out(name: str) -> None:
    make, example = MODELS[name]
    torch.manual_seed(0)
    model, tokens = make().double().eval(), example()
    model.config.use_cache = False  # as the Trainer sets it: with a cache, transformers makes no mask
    findings.clear()
    options: Any = {"gradkern": {"causal attention": True}}
    compiled = torch.compile(model, backend="gradkern", options=options)
    ours, theirs = compiled(tokens).logits, model(tokens).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)  # Llama's norms compute in float32
    found = [each.reason for each in gradkern.torch.report().compiled if each.fusion == "causal attention"]
    assert found == ["", ""]
