"""The models of train_bench.py, written out: packages of models may not be where the GPU is. Weights are random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

__all__ = ["CASES", "Case"]

Tensor = torch.Tensor


class Attention(nn.Module):
    """Causal self-attention; with `rotary`, positions turn queries and keys."""

    def __init__(self, width: int, heads: int, rotary: bool) -> None:
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.qkv = nn.Linear(width, 3 * width, bias=not rotary)
        self.out = nn.Linear(width, width, bias=not rotary)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = _turned(q), _turned(k)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def _turned(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    one, other = x.chunk(2, -1)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)


class GatedMlp(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, -1)
        return self.down(functional.silu(gate) * value)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, llama: bool) -> None:
        super().__init__()
        norm = (lambda: nn.RMSNorm(width, eps=1e-5)) if llama else (lambda: nn.LayerNorm(width))
        self.first, self.second = norm(), norm()
        self.attention = Attention(width, heads, llama)
        if llama:
            self.mlp: nn.Module = GatedMlp(width, width * 11 // 4)
        else:
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    """A GPT with layer norms, GELU and learnt positions; or, as Llama's, with RMSNorm, SwiGLU and rotary ones.

    head  whether it ends in logits of the words, or in the last norm
    """

    def __init__(
        self, layers: int, width: int, heads: int, length: int, words: int, llama: bool = False, head: bool = True
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = None if llama else nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*[Block(width, heads, llama) for _ in range(layers)])
        self.norm = nn.RMSNorm(width, eps=1e-5) if llama else nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False) if head else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        if self.positions is not None:
            x = x + self.positions
        return self.head(self.norm(self.blocks(x)))


# --- images ----------------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.one, self.one_norm = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.two, self.two_norm = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.three, self.three_norm = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.short = None
        if stride > 1 or channels != out:
            self.short = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.one_norm(self.one(x)), inplace=True)
        y = functional.relu(self.two_norm(self.two(y)), inplace=True)
        y = self.three_norm(self.three(y)) + (x if self.short is None else self.short(x))
        return functional.relu(y, inplace=True)


def resnet(layers: Sequence[int], width: int = 64, classes: int = 1000) -> nn.Module:
    modules: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = width
    for stage, count in enumerate(layers):
        for each in range(count):
            modules.append(Bottleneck(channels, width << stage, 2 if stage and not each else 1))
            channels = 4 * (width << stage)
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class LastNorm(nn.LayerNorm):
    """Over the channels of an image."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext(layers: Sequence[int], widths: Sequence[int], classes: int = 1000) -> nn.Module:
    modules: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), LastNorm(widths[0], eps=1e-6)]
    for stage, (count, width) in enumerate(zip(layers, widths, strict=True)):
        if stage:
            modules += [LastNorm(widths[stage - 1], eps=1e-6), nn.Conv2d(widths[stage - 1], width, 2, 2)]
        modules += [ConvNextBlock(width) for _ in range(count)]
    last = widths[-1]
    return nn.Sequential(
        *modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(last, eps=1e-6), nn.Linear(last, classes)
    )


class Inverted(nn.Module):
    """MBConv: widen, depthwise, squeeze and excite, narrow."""

    def __init__(self, channels: int, out: int, expand: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide, squeezed = channels * expand, max(1, channels // 4)
        widen = [nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(inplace=True)]
        self.before = nn.Sequential(
            *(widen if expand > 1 else []),
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.SiLU(inplace=True),
        )
        self.squeeze, self.excite = nn.Conv2d(wide, squeezed, 1), nn.Conv2d(squeezed, wide, 1)
        self.narrow = nn.Sequential(nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out))
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        gate = self.excite(functional.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        y = self.narrow(y * gate.sigmoid())
        return x + y if self.adds else y


B0 = (
    (1, 16, 3, 1, 1),
    (6, 24, 3, 2, 2),
    (6, 40, 5, 2, 2),
    (6, 80, 3, 2, 3),
    (6, 112, 5, 1, 3),
    (6, 192, 5, 2, 4),
    (6, 320, 3, 1, 1),
)
"""EfficientNet-B0: expansion, channels, kernel, stride, how many."""


def efficientnet(stages: Sequence[tuple[int, int, int, int, int]], classes: int = 1000) -> nn.Module:
    modules: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(inplace=True)]
    channels = 32
    for expand, out, kernel, stride, count in stages:
        for each in range(count):
            modules.append(Inverted(channels, out, expand, kernel, 1 if each else stride))
            channels = out
    head = [nn.Conv2d(channels, 4 * channels, 1, bias=False), nn.BatchNorm2d(4 * channels), nn.SiLU(inplace=True)]
    return nn.Sequential(*modules, *head, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * channels, classes))


class UNet3d(nn.Module):
    """As nnU-Net's: two convolutions a level, each with instance norm; strided down, transposed up."""

    def __init__(self, widths: Sequence[int], classes: int = 3) -> None:
        super().__init__()
        self.down = nn.ModuleList()
        channels = 1
        for level, width in enumerate(widths):
            self.down.append(_twice(channels, width, 2 if level else 1))
            channels = width
        self.up, self.join = nn.ModuleList(), nn.ModuleList()
        for width in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose3d(channels, width, 2, 2))
            self.join.append(_twice(2 * width, width, 1))
            channels = width
        self.head = nn.Conv3d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.head(x)


def _twice(channels: int, width: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(channels, width, 3, stride, 1),
        nn.InstanceNorm3d(width, affine=True),
        nn.LeakyReLU(inplace=True),
        nn.Conv3d(width, width, 3, 1, 1),
        nn.InstanceNorm3d(width, affine=True),
        nn.LeakyReLU(inplace=True),
    )


# --- what is measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model and how it is trained.

    shape      of the input, batch first; of tokens if `words`, else of an image
    classes    of what the cross entropy is taken; 0: the gradient of the output is random numbers, and there is no loss
    precision  "bf16", parameters too; "autocast", to bf16; "f32", without TF32
    last       channels-last
    """

    name: str
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    precision: str
    words: bool = False
    last: bool = False


def _cases() -> dict[str, Case]:
    every = [
        Case("GPT 12x1024", lambda: Transformer(12, 1024, 16, 1024, 50304), (16, 1024), 50304, "bf16", words=True),
        Case(
            "GPT 12x1024 body", lambda: Transformer(12, 1024, 16, 1024, 50304, head=False), (16, 1024), 0, "bf16", True
        ),
        Case(
            "Llama-like 12x1024", lambda: Transformer(12, 1024, 16, 1024, 32000, True), (16, 1024), 32000, "bf16", True
        ),
        Case("ResNet-50", lambda: resnet((3, 4, 6, 3)), (128, 3, 224, 224), 1000, "autocast", last=True),
        Case("ResNet-50 NCHW", lambda: resnet((3, 4, 6, 3)), (128, 3, 224, 224), 1000, "autocast"),
        Case("ResNet-50 float32", lambda: resnet((3, 4, 6, 3)), (64, 3, 224, 224), 1000, "f32"),
        Case(
            "ConvNeXt-T",
            lambda: convnext((3, 3, 9, 3), (96, 192, 384, 768)),
            (64, 3, 224, 224),
            1000,
            "autocast",
            last=True,
        ),
        Case("EfficientNet-B0", lambda: efficientnet(B0), (128, 3, 224, 224), 1000, "autocast", last=True),
        Case("3-D U-Net", lambda: UNet3d((32, 64, 128, 256, 320)), (2, 1, 128, 128, 128), 3, "autocast"),
    ]
    return {each.name: each for each in every}


def _tiny() -> dict[str, Case]:
    """The same kinds of layers in sizes for a CPU."""
    every = [
        Case("GPT 12x1024", lambda: Transformer(1, 32, 2, 16, 64), (2, 16), 64, "f32", words=True),
        Case("GPT 12x1024 body", lambda: Transformer(1, 32, 2, 16, 64, head=False), (2, 16), 0, "f32", True),
        Case("Llama-like 12x1024", lambda: Transformer(1, 32, 2, 16, 64, True), (2, 16), 64, "f32", True),
        Case("ResNet-50", lambda: resnet((1, 1), 8, 10), (2, 3, 32, 32), 10, "f32", last=True),
        Case("ResNet-50 NCHW", lambda: resnet((1, 1), 8, 10), (2, 3, 32, 32), 10, "f32"),
        Case("ResNet-50 float32", lambda: resnet((1, 1), 8, 10), (2, 3, 32, 32), 10, "f32"),
        Case("ConvNeXt-T", lambda: convnext((1, 1), (8, 16), 10), (2, 3, 32, 32), 10, "f32", last=True),
        Case("EfficientNet-B0", lambda: efficientnet(B0[:2], 10), (2, 3, 32, 32), 10, "f32", last=True),
        Case("3-D U-Net", lambda: UNet3d((4, 8)), (1, 1, 8, 8, 8), 3, "f32"),
    ]
    return {each.name: each for each in every}


CASES = {False: _cases(), True: _tiny()}
"""By whether they are the tiny ones."""
