"""Where a model has a batch norm with an activation, and a residual, that can be computed as one: by classes that are
exactly known, whose forward passes call one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from gradkern.torch.modules.layers import BatchNorm1d, BatchNorm2d, BatchNorm3d

__all__ = ["FusedLeakyReLU", "FusedReLU", "FusedSiLU", "Join", "joins"]

Tensor = torch.Tensor
Path = Callable[[str], str]


class FusedReLU(nn.ReLU):
    """A ReLU that the batch norm before it has done."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        return input


class FusedLeakyReLU(nn.LeakyReLU):
    """A LeakyReLU that the batch norm before it has done."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        return input


class FusedSiLU(nn.SiLU):
    """A SiLU that the batch norm before it has done."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        return input


class Join(NamedTuple):
    """Modules that become others together: each with its name, its new class and the attributes it gets.

    inside    modules that are called no longer, or are given something else: none may be hooked
    obstacle  why it cannot be; "" where it can
    """

    parts: tuple[tuple[nn.Module, str, type[nn.Module], dict[str, Any]], ...]
    inside: tuple[nn.Module, ...]
    obstacle: str = ""


_NORMS: dict[type, type[nn.Module]] = {
    nn.BatchNorm1d: BatchNorm1d,
    nn.BatchNorm2d: BatchNorm2d,
    nn.BatchNorm3d: BatchNorm3d,
}
_ACTIVATIONS: dict[type, tuple[str, type[nn.Module]]] = {
    nn.ReLU: ("relu", FusedReLU),
    nn.LeakyReLU: ("leaky_relu", FusedLeakyReLU),
    nn.SiLU: ("silu", FusedSiLU),
}
_BLOCKS = {
    ("torchvision.models.resnet", "BasicBlock"): ("bn1", "bn2"),
    ("torchvision.models.resnet", "Bottleneck"): ("bn1", "bn2", "bn3"),
}


def joins(module: Any, path: Path) -> Iterator[Join]:
    """What can be joined among the module and its children, whose names `path` makes of their own."""
    kind = type(module)
    known = kind.__module__, kind.__qualname__
    if isinstance(module, nn.Sequential) and kind.forward is nn.Sequential.forward:
        for (first, norm), (second, activation) in pairwise(module._modules.items()):
            yield from _behind(norm, path(first), activation, path(second))
    elif known == ("torchvision.models.resnet", "ResNet"):  # its stem
        yield from _behind(module.bn1, path("bn1"), module.relu, path("relu"))
    elif known in _BLOCKS:
        yield _block(module, path, _BLOCKS[known])
    elif kind.__module__.startswith("timm.") and kind.__qualname__ == "BatchNormAct2d":
        yield from _timm(module, path(""))


def _behind(norm: Any, name: str, activation: Any, other: str) -> Iterator[Join]:
    """An activation module after a batch norm."""
    if type(norm) in _NORMS and type(activation) in _ACTIVATIONS:
        _, fused = _ACTIVATIONS[type(activation)]
        changed = (norm, name, _NORMS[type(norm)], _attributes(activation))
        yield Join((changed, (activation, other, fused, {})), (norm, activation), _obstacle(norm))


def _attributes(activation: nn.Module) -> dict[str, Any]:
    """What tells a batch norm of the activation behind it."""
    if type(activation) not in _ACTIVATIONS:
        return {"activation": "none"}
    word, _ = _ACTIVATIONS[type(activation)]
    alpha = {"activation_alpha": activation.negative_slope} if isinstance(activation, nn.LeakyReLU) else {}
    return {"activation": word, **alpha}


def _block(block: Any, path: Path, norms: tuple[str, ...]) -> Join:
    """One of torchvision's residual blocks, each of whose norms is followed by ReLU, the last after the addition."""
    children = [getattr(block, name) for name in norms]
    other = next((each for each in children if type(each) is not nn.BatchNorm2d), None)
    if other is not None or type(block.relu) is not nn.ReLU:
        kind = type(block.relu if other is None else other).__name__
        return Join(((block, path(""), type(block), {}),), (), f"a class in it is {kind}")
    joined = getattr(import_module("gradkern.torch.modules.torchvision_resnet"), f"Joined{type(block).__name__}")
    parts = [
        (each, path(name), BatchNorm2d, {"activation": "relu"}) for name, each in zip(norms, children, strict=True)
    ]
    obstacle = next((why for why in map(_obstacle, children) if why), "")
    return Join(((block, path(""), joined, {}), *parts), (*children, block.relu), obstacle)


def _timm(norm: Any, name: str) -> Iterator[Join]:
    if type(norm.act) is nn.Identity and type(norm.drop) is nn.Identity:
        return  # a batch norm like any other
    others = [
        type(each).__name__
        for each, known in ((norm.act, [nn.Identity, *_ACTIVATIONS]), (norm.drop, [nn.Identity]))
        if type(each) not in known
    ]
    if others:
        yield Join(((norm, name, type(norm), {}),), (), f"its activation or drop is {others[0]}")
        return
    joined = import_module("gradkern.torch.modules.timm_norm_act").JoinedBatchNormAct2d
    yield Join(((norm, name, joined, _attributes(norm.act)),), (norm.act, norm.drop), _obstacle(norm))


def _obstacle(norm: Any) -> str:
    if not norm.affine:
        return "it has no weight and bias"
    return "its momentum is None" if norm.momentum is None else ""
