"""Models that are drawn at random from what people write around norms, linear layers and activations.

A model is a list of calls, each a method of Images or Rows, which is given what the one before returned and what stayed
from earlier ones. The same seed is the same model.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["KINDS", "Drawn", "Images", "Rows"]

Tensor = torch.Tensor

# What may follow a norm of images. They are seven: a call's number chooses other things by its remainder by 2, 3 or 4.
ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    lambda: nn.ReLU(inplace=True),
    lambda: nn.LeakyReLU(0.2),
    nn.SiLU,
    nn.ReLU6,
    nn.Hardswish,
    lambda: nn.ELU(0.7),
    nn.GELU,
)


@torch.compiler.allow_in_graph
def opaque(x: Tensor) -> Tensor:
    return x.sin()


class Drawn(nn.Module):
    """Calls that both kinds of model have. `length` calls are drawn, by the methods' names, with a number each.

    in_turn    calls whose numbers choose the activations in turn, starting at the seed's, so that few seeds have all
    sizes      of the batches that it is to be called with, in training
    evaluated  whether it is to be called in evaluation, too
    """

    common = (
        *("keep", "keep", "add_kept", "add_kept_in_place", "double_in_place", "write_detached", "write_kept_view"),
        *("without_grad", "add_in_no_grad", "hook", "dropout", "unknown", "transform", "autocast"),
        *("checkpointed", "write_parameter", "other_order", "joined"),
    )
    layers: tuple[str, ...] = ()
    in_turn: tuple[str, ...] = ()

    def __init__(self, seed: int, length: int = 9) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.make()
        self.double()
        for name, each in self.named_parameters():
            nn.init.normal_(each, 1.0 if "norm" in name else 0.0, 0.4)
            each.requires_grad_(self.draw.random() < 0.85)
        calls = self.draw.choices([*self.layers * 3, *self.common], k=length)
        turns = itertools.count(seed)
        self.calls = [(each, self.number(next(turns) if each in self.in_turn else None)) for each in calls]
        self.graphs = self.draw.choice((1, 1, 1, 2))
        self.sizes = self.draw.choice(((3, 3), (3, 3), (3, 4)))
        self.evaluated = self.draw.random() < 0.4
        del self.draw

    def make(self) -> None:
        raise NotImplementedError

    def number(self, turn: int | None) -> int:
        drawn = self.draw.randrange(1 << 20)
        return drawn if turn is None else drawn - drawn % len(ACTIVATIONS) + turn % len(ACTIVATIONS)

    def forward(self, x: Tensor) -> Any:
        kept, half = [x * 1.0], len(self.calls) // self.graphs
        x = self.through(x, kept, self.calls[:half])
        if self.graphs > 1:
            torch._dynamo.graph_break()
            x = self.through(x, kept, self.calls[half:])
        return x, kept[-1]

    def through(self, x: Tensor, kept: list[Tensor], calls: list[tuple[str, int]]) -> Tensor:
        for name, number in calls:
            x = getattr(self, name)(x, kept, number)
        return x

    def keep(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        kept.append(x)
        return x

    def add_kept(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        other = kept[number % len(kept)]
        return (x + other, torch.add(other, x), x.add(other))[number % 3]

    def add_kept_in_place(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        x = x * 0.5
        x += kept[number % len(kept)]
        return x

    def double_in_place(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        x = x.sin() if number % 2 else x * 0.7
        return (x.mul_(2.0), x.__imul__(2.0), torch.ops.aten.mul_.Scalar(x, 2.0))[number % 3]

    def write_detached(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        """What was kept is written where autograd does not look; of a copy, which no gradient needs."""
        copy = (kept[number % len(kept)] * 1.0).detach()
        y = x + copy
        copy[:, number % 2] = 0.5
        return y * copy

    def write_kept_view(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        kept[-1].data[:1].mul_(1.1)
        return x

    def without_grad(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        name = self.layers[number % len(self.layers)]
        with torch.no_grad():
            y = getattr(self, name)(x, kept, number)
        return x + y * 0.3

    def add_in_no_grad(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        with torch.no_grad():
            total = x + kept[number % len(kept)]
        return x * 0.5 + self.normed(total, number)

    def hook(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        x = x * 1.0
        if x.requires_grad:
            x.register_hook(lambda grad: grad * 1.5)
        return x

    def dropout(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return functional.dropout(x, 0.3, self.training)

    def unknown(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return x + opaque(kept[number % len(kept)])

    def transform(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        weight = kept[number % len(kept)].detach()
        return x + torch.func.grad(lambda y: (self.activated(y * weight + y, number)).sum())(x.detach())

    def autocast(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):  # which leaves float64 as it is
            return self.normed(x + kept[number % len(kept)], number)

    def checkpointed(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        other = kept[number % len(kept)]

        def body(y: Tensor) -> Tensor:
            return self.activated(self.joined(y + other, [other], number), number)

        found: Any = checkpoint(body, x, use_reentrant=False)
        return found

    def write_parameter(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        biases = [each for name, each in self.named_parameters() if name.endswith("bias")]
        biases[number % len(biases)].data.mul_(1.01)
        return x

    def other_order(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return x.transpose(1, -1).contiguous().transpose(1, -1) if number % 2 else x.contiguous()

    def joined(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        """Layers that hold nothing that a second call would count."""
        return x.tanh()

    def normed(self, x: Tensor, number: int) -> Tensor:
        raise NotImplementedError

    def activated(self, x: Tensor, number: int) -> Tensor:
        kinds = (functional.relu, functional.silu, functional.leaky_relu, functional.gelu, torch.tanh)
        return kinds[number % len(kinds)](x)


class Images(Drawn):
    """Batch and instance norms, convolutions."""

    layers = ("norm", "norm_activation", "norm_sum_activation", "norm_sum", "norm_sum_activation", "two_norms")
    layers += (
        "block",
        "block",
        "convolution",
        "convolution_norm",
        "instance_norm",
        "depthwise",
        "norm_in_evaluation",
        "statistics",
    )
    in_turn = ("norm_activation", "convolution_norm", "block", "statistics")

    def make(self) -> None:
        self.norms = nn.ModuleList([nn.BatchNorm2d(4, momentum=each) for each in (0.1, 0.5, 0.3)])
        self.instance_norms = nn.ModuleList([nn.InstanceNorm2d(4, affine=True), nn.InstanceNorm2d(4)])
        self.convs = nn.ModuleList([nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1, bias=False)])
        blocks = [nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), each()) for each in ACTIVATIONS]
        self.blocks = nn.ModuleList(blocks)
        self.depth = nn.Conv2d(4, 4, 3, padding=1, groups=4)

    @staticmethod
    def example(count: int) -> Tensor:
        return torch.randn(count, 4, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(count))

    def normed(self, x: Tensor, number: int) -> Tensor:
        return self.norms[number % 3](x)

    def act(self, x: Tensor, number: int) -> Tensor:
        kinds = (
            lambda: functional.relu(x, inplace=True),
            lambda: functional.leaky_relu(x, 0.2),
            lambda: functional.silu(x),
            lambda: functional.relu6(x),
            lambda: functional.hardswish(x),
            lambda: functional.elu(x, 0.7),
            lambda: functional.gelu(x),
        )
        return kinds[number % len(kinds)]()

    def norm(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.normed(x, number)

    def norm_activation(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.act(self.normed(x, number), number)

    def norm_sum(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        y, other = self.normed(x, number), kept[number // 3 % len(kept)]
        if number % 4 == 0:
            if number % 8:
                other = other * 1.5
                other += y
                return other
            y += other
            return y
        return other + y if number % 4 == 1 else y + other

    def norm_sum_activation(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        """With an activation whose derivative the output's sign tells, or another."""
        return self.act(self.norm_sum(x, kept, number), number // 2 % 3)

    def two_norms(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        """As where a block's shortcut has a norm; at times of one module."""
        other = kept[number % len(kept)]
        return self.act(self.normed(x, number) + self.normed(other, number // 3), number)

    def block(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.blocks[number % len(ACTIVATIONS)](x)

    def convolution(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.convs[number % 2](x)

    def convolution_norm(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.norm_activation(self.convs[number % 2](x), kept, number)

    def instance_norm(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.act(self.instance_norms[number % 2](self.convs[number // 2 % 2](x)), number)

    def depthwise(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.depth(x)

    def norm_in_evaluation(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        norm: Any = self.norms[number % 3]
        return x * 0.5 + functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)

    def statistics(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        """They are read, or written, between a norm and its activation."""
        norm: Any = self.norms[number % 3]
        y = norm(x)
        mean = norm.running_mean.clone()
        if number % 2:
            norm.running_var.data.mul_(1.1)
        return self.act(y, number) + mean[:, None, None]


class Rows(Drawn):
    """Layer norms and RMSNorms of sums, linear layers and GELU."""

    layers = ("sum_norm", "sum_norm", "stream", "stream", "linear_gelu", "pair", "pair", "spelled", "shift", "shared")
    layers += ("two_norms_of_one_sum",)

    def make(self) -> None:
        self.norms = nn.ModuleList([nn.LayerNorm(6), nn.RMSNorm(6, eps=1e-6), nn.LayerNorm(6, bias=False)])
        self.linears = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.pairs = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.GELU(each)) for each in ("none", "tanh")])
        self.first, self.second = nn.Parameter(torch.zeros(1, 1, 6)), nn.Parameter(torch.zeros(6))
        self.places = nn.Parameter(torch.zeros(4, 6))

    @staticmethod
    def example(count: int) -> Tensor:
        return torch.randn(count, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(count))

    def normed(self, x: Tensor, number: int) -> Tensor:
        return self.norms[number % 3](x) if number % 8 < 3 else self.spelled_norm(x, number % 8)

    def spelled_norm(self, x: Tensor, number: int) -> Tensor:
        """As packages spell norms out, those of 7 with statistics that others use, too."""
        weight: Any = self.norms[number % 3].weight
        wide = x.to(torch.float64)
        if number == 3:
            wide = wide - wide.mean(-1, keepdim=True)
            return wide / torch.sqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6) * weight + self.second
        if number == 4:
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)
        if number == 5:
            variance = torch.var(wide, dim=-1, unbiased=False, keepdim=True)
            return ((wide - torch.mean(wide, -1, True)) * torch.rsqrt(1e-6 + variance)) * weight.to(torch.float64)
        inverse = torch.pow(torch.mean(wide * wide, -1, keepdim=True) + 1e-6, -0.5)
        y = (x * inverse * (1.0 + weight)).to(x.dtype) if number == 6 else weight * (wide * inverse).to(x.dtype)
        return y + inverse if number == 7 else y

    def sum_norm(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.normed(x + kept[number % len(kept)], number)

    def stream(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        """A residual block before a norm: the sum is kept, too."""
        total = kept[-1] + self.linears[number % 3](x)
        kept.append(total)
        return self.normed(total, number)

    def linear_gelu(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return functional.gelu(self.linears[number % 3](x), approximate=("none", "tanh")[number % 2])

    def pair(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        return self.pairs[number % 2](x)

    def spelled(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        x = self.linears[number % 3](x)
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

    def shift(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        """Parameters whose gradients are one sum, or sums over some rows."""
        x = self.linears[number % 3](x) + (self.first, self.second, self.places)[number % 3]
        return self.normed(x + self.first + kept[-1], number)

    def two_norms_of_one_sum(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        total = x + kept[number % len(kept)]
        return self.normed(total, number).sin() + self.normed(total, number // 8) + total

    def shared(self, x: Tensor, kept: list[Tensor], number: int) -> Tensor:
        norm = self.norms[number % 3]
        return norm(norm(x + kept[-1]) + kept[0])


KINDS: tuple[type[Any], ...] = (Images, Rows)
