"""torch.compile(backend="gradkern") and residual streams that begin as a convolution's output, transposed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import rewritten
from helpers.models import torchvision
from helpers.rewritten import EXACT, reasons, step
from torch import fx, nn
from torch.nn import functional

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

BANDS, LENGTH, WIDTH = 4, 6, 8
Tensor = torch.Tensor


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: Tensor, kind: str) -> Tensor:
        if "rms" in kind:
            wide = x.to(torch.promote_types(x.dtype, torch.float32))
            y = self.scale * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        else:
            y = self.norm(x)
        return x + functional.dropout(self.linear(y), 0.0, self.training)


class Tokens(nn.Module):
    """Two layers on tokens from a convolution. `begin` makes the stream of tokens and positions, `end` the results of
    the stream and its norm.
    """

    def __init__(self, kind: str, begin: Callable[..., Any] = torch.add, end: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.kind, self.begin, self.end = kind, begin, end
        self.conv, self.norm = nn.Conv1d(BANDS, WIDTH, 3, padding=1), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH))

    def forward(self, x: Tensor) -> Any:
        x = functional.gelu(self.conv(x)).transpose(1, 2)
        x = functional.dropout(self.begin(x, self.positions), 0.0, self.training)
        if "cast" in self.kind:
            x = x.double()
        for each in self.layers:
            x = each(x, self.kind)
        y = self.norm(x)
        return y if self.end is None else self.end(x, y)


def compiled(model: nn.Module) -> tuple[Any, list[Any]]:
    """The model with the first stage's graph, and a list that gets the strides of what `contiguous` is called with."""

    def copied(graph: fx.Graph) -> list[Any]:
        nodes = graph.find_nodes(op="call_method", target="contiguous")
        return [each.args[0].meta["example_value"].stride() for each in nodes]

    return rewritten.compiled(model, copied)


def sums() -> list[str]:
    """Of the additions before norms, the reasons why they are not taken; "" of those that are."""
    return reasons("add + ")


SOUND = torch.randn(3, BANDS, LENGTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["layer norm", "rms norm"])
def test_the_stream_is_made_contiguous_once_and_every_sum_is_taken(kind: str, half: bool) -> None:
    torch.manual_seed(0)
    model = Tokens(kind)
    exact = step(double := copy.deepcopy(model).double(), double, SOUND.double())
    eager = step(model, model, SOUND, half)
    run, copied = compiled(model)
    found = step(model, run, SOUND, half)
    assert copied == [(LENGTH * WIDTH, 1, LENGTH)]
    assert sums() == ["", ""]
    for name, each in eager.items():
        assert (found[name].dtype, found[name].stride()) == (each.dtype, each.stride())
        bound = 1.5 * (each - exact[name]).norm() + (2e-3 if half else 1e-6) * exact[name].norm()
        assert (found[name] - exact[name]).norm() <= bound, name


@pytest.mark.parametrize("any_batch", [False, True])
def test_gradients_and_random_numbers_are_eagers(any_batch: bool) -> None:
    model, x = Tokens("layer norm").double(), SOUND.double()
    torch.manual_seed(0)
    eager, state = step(model, model, x), torch.get_rng_state()
    run, copied = compiled(model)
    torch.manual_seed(0)
    torch.testing.assert_close(step(model, run, x, any_batch=any_batch), eager, **EXACT)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(copied) == 1
    assert sums() == ["", ""]


def test_casts_between_keep_the_stream() -> None:
    model = Tokens("layer norm, cast")
    model.layers.double()
    model.norm.double()
    eager = step(model, model, SOUND)
    run, copied = compiled(model)
    torch.testing.assert_close(step(model, run, SOUND), eager)
    assert len(copied) == 1
    assert sums() == ["", ""]


def written(x: Tensor, positions: Tensor) -> Tensor:
    x = x + positions
    x += 1
    return x


@pytest.mark.parametrize("begin", [written, torch.mul])
def test_what_begins_otherwise_is_copied_at_the_first_sum(begin: Callable[..., Any]) -> None:
    model, x = Tokens("layer norm", begin).double(), SOUND.double()
    eager = step(model, model, x)
    run, copied = compiled(model)
    torch.testing.assert_close(step(model, run, x), eager, **EXACT)
    assert len(copied) == 1
    assert sums() == [""]


BEGINS: dict[str, Callable[..., Any]] = {
    "contiguous tokens": lambda x, positions: x.reshape(-1, WIDTH).view(x.shape) + positions,
    "tokens that are added to": lambda x, positions: positions.expand(x.shape).clone() + x,
    "a view of the sum that is written": lambda x, positions: (y := x + positions, y[:, 0].mul_(2))[0],
    "an image of the tokens": lambda x, positions: (y := x + positions) + y.transpose(1, 2).view(-1, LENGTH, WIDTH),
    "as_strided": lambda x, positions: (y := x + positions) + torch.as_strided(y, y.shape, (LENGTH * WIDTH, WIDTH, 1)),
}
ENDS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a sum is a result": lambda x, y: (x, y),
    "a view of a sum is a result": lambda x, y: (y, x[:, 0]),
}


@pytest.mark.parametrize("case", [*BEGINS, *ENDS])
def test_other_streams_stay_as_they_are(case: str) -> None:
    torch.manual_seed(0)
    model = Tokens("layer norm", BEGINS.get(case) or torch.add, ENDS.get(case)).double()
    eager = step(model, model, SOUND.double())
    run, copied = compiled(model)
    found = step(model, run, SOUND.double())
    torch.testing.assert_close(found, eager, **EXACT)
    assert {name: each.stride() for name, each in found.items()} == {name: y.stride() for name, y in eager.items()}
    assert copied == []


def test_results_that_are_copies_in_eager_stay_copies() -> None:
    def end(x: Tensor, y: Tensor) -> Any:
        return x.contiguous(), x.reshape(-1), y

    model = Tokens("layer norm", end=end).double()
    run, copied = compiled(model)
    one, other, _ = run(SOUND.double())
    one.detach().zero_()
    assert other.any()
    assert len(copied) == 1  # the model's own


class Images(nn.Module):
    """As ConvNeXt and Swin have them, with channels first in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.second = nn.Conv2d(3, WIDTH, 2), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        for norm in (self.first, self.second):
            x = x + self.linear(norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        x = self.first(x.permute(0, 2, 3, 1))
        return self.second(x + self.linear(x))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_images_get_no_copies(order: Any) -> None:
    torch.manual_seed(0)
    model: Any = Images().double()
    model = model.to(memory_format=order)
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64).to(memory_format=order)
    eager = step(model, model, x)
    run, copied = compiled(model)
    torch.testing.assert_close(step(model, run, x), eager, **EXACT)
    assert copied == []
    assert sums() == [""]


_LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_SIDES = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_WHISPER = {**_SIDES, **_IDS, "d_model": 16, "vocab_size": 16, "num_mel_bins": BANDS, "max_source_positions": LENGTH}
_SOUND = {"input_features": torch.randn(2, BANDS, 2 * LENGTH), "decoder_input_ids": torch.ones(2, 3, dtype=torch.int64)}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {  # their sizes, what they get, their sums
    "SiglipVisionModel": ({**_LAYERS, "image_size": 8, "patch_size": 4}, {"pixel_values": torch.randn(2, 3, 8, 8)}, 4),
    "WhisperModel": (_WHISPER, {**_SOUND, "use_cache": False}, 10),
}


@pytest.mark.models
@pytest.mark.parametrize("name", MODELS)
def test_every_sum_of_models_of_transformers_is_taken(name: str) -> None:
    torchvision()  # before transformers: it defines what a wheel for CUDA lacks
    transformers = pytest.importorskip("transformers")
    sizes, given, count = MODELS[name]
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**sizes)).train()
    parameters = [each for each in model.parameters() if each.requires_grad]
    run, _ = compiled(model)
    found, eager = (
        torch.autograd.grad(each(**given).last_hidden_state.sin().sum(), parameters, allow_unused=True)
        for each in (run, model)
    )
    assert sums() == [""] * count
    used = [each for each, gradient in enumerate(eager) if gradient is not None]  # not by the pooled output
    torch.testing.assert_close([found[each] for each in used], [eager[each] for each in used], rtol=1e-3, atol=1e-4)
