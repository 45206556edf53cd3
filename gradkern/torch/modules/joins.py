"""Pairs of modules that are computed as one: a batch norm and the activation behind it, maybe with an addition between,
and a linear layer and its GELU.

Both modules stay what they are. The module that calls one after the other gets another class. It checks at every call
what it has in both places then: modules that were replaced, hooked or given a forward of their own are called as
PyTorch would. So is everything in evaluation, under torch.compile, torch.fx or torch.jit, and while there are hooks for
all modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportMissingImports]

from gradkern.torch.derived import Derived, derived
from gradkern.torch.direct import needs_pytorch
from gradkern.torch.functional.functions import linear_gelu
from gradkern.torch.modules.layers import train_batch_norm
from gradkern.torch.tracers import Scriptable, class_but_for_gradkern

Tensor = torch.Tensor
PATCHED = "a forward of its own has been put into it"
_NORMS = frozenset({nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d})
_ACTIVATIONS = {nn.ReLU: "relu", nn.LeakyReLU: "leaky_relu", nn.SiLU: "silu", nn.ReLU6: "relu6"}
_ACTIVATIONS |= {nn.Hardswish: "hardswish", nn.ELU: "elu", nn.GELU: "gelu"}


class Pair(NamedTuple):
    """Children of a module by their names there; what it computes; why it does not, "" where it does."""

    first: str
    second: str
    what: str
    obstacle: str


class Joining(Derived, Scriptable):
    """A module that computes pairs of its children as one; `apart` has the first names of those that it leaves."""

    apart = frozenset()

    def joined(self: Any, first: str, second: str, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """second(first(x) + residual)"""
        one, other = getattr(self, first), getattr(self, second)
        y = None if first in self.apart else _as_one(one, other, x, residual)
        if y is not None:
            return y
        y = one(x)
        if residual is not None:
            y += residual
        return other(y)


class _Sequential(Joining):
    def forward(self: Any, input: Any) -> Any:  # noqa: A002  as its base class calls it
        if not _may_join(input):
            return super().forward(input)  # pyright: ignore[reportAttributeAccessIssue]
        done = False
        children: list[tuple[str, Any]] = [*self._modules.items(), ("", None)]
        for (name, first), (_, second) in pairwise(children):
            if done:  # as the second of a pair
                done = False
                continue
            y = None if name in self.apart else _as_one(first, second, input)
            done = y is not None
            input = first(input) if y is None else y  # noqa: A001
        return input


class _ResNet(Joining):
    def _forward_impl(self: Any, x: Tensor) -> Tensor:
        if not _may_join(x):
            return super()._forward_impl(x)  # pyright: ignore[reportAttributeAccessIssue]
        x = self.maxpool(self.joined("bn1", "relu", self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class _BasicBlock(Joining):
    def forward(self: Any, x: Tensor) -> Tensor:
        if not _may_join(x):
            return super().forward(x)  # pyright: ignore[reportAttributeAccessIssue]
        out = self.conv2(self.joined("bn1", "relu", self.conv1(x)))
        return self.joined("bn2", "relu", out, x if self.downsample is None else self.downsample(x))


class _Bottleneck(Joining):
    def forward(self: Any, x: Tensor) -> Tensor:
        if not _may_join(x):
            return super().forward(x)  # pyright: ignore[reportAttributeAccessIssue]
        out = self.conv2(self.joined("bn1", "relu", self.conv1(x)))
        out = self.conv3(self.joined("bn2", "relu", out))
        return self.joined("bn3", "relu", out, x if self.downsample is None else self.downsample(x))


class _BatchNormAct(Joining):
    """timm's: a batch norm whose children `drop` and `act` are called behind it."""

    def forward(self: Any, x: Tensor) -> Tensor:
        if not self.training or not _may_join(x) or _obstacle_in_timms(self):
            return super().forward(x)  # pyright: ignore[reportAttributeAccessIssue]
        return _train(self, self.act, x, None)


_TORCHVISIONS: dict[str, tuple[type, tuple[str, ...]]] = {
    "ResNet": (_ResNet, ("bn1",)),
    "BasicBlock": (_BasicBlock, ("bn1", "bn2")),
    "Bottleneck": (_Bottleneck, ("bn1", "bn2", "bn3")),
}


def joining(module: nn.Module) -> type[nn.Module]:
    """The class of a module that computes its pairs as one."""
    kind = type(module)
    if issubclass(kind, Joining):
        return kind
    if isinstance(module, nn.Sequential):
        mixin = _Sequential
    else:
        mixin = _TORCHVISIONS[kind.__name__][0] if kind.__name__ in _TORCHVISIONS else _BatchNormAct
    return derived(f"Joined{kind.__name__}", mixin, kind)


def pairs(module: Any) -> Iterator[Pair]:
    """What a module of a known class calls one after the other and can be one, or cannot though it looks like it."""
    kind = class_but_for_gradkern(module)
    if isinstance(module, nn.Sequential) and kind.forward is nn.Sequential.forward:
        for (first, one), (second, other) in pairwise(module._modules.items()):
            why = _obstacle(one, other)
            if why is not None:
                yield Pair(first, second, f"{_name(one)} + {_name(other)}", why)
    elif kind.__module__ == "torchvision.models.resnet" and kind.__name__ in _TORCHVISIONS:
        _, norms = _TORCHVISIONS[kind.__name__]
        for name in norms:
            norm = getattr(module, name)
            added = "add + " if name == norms[-1] and kind.__name__ != "ResNet" else ""
            why = _obstacle(norm, module.relu)
            if why is None:
                why = f"a class is {_name(module.relu if type(norm) in _NORMS else norm)}"
            yield Pair(name, "relu", f"{_name(norm)} + {added}{_name(module.relu)}", why)
    elif _is_timms(kind) and (type(module.act), type(module.drop)) != (nn.Identity, nn.Identity):
        yield Pair("", "", f"{kind.__name__} with {_name(module.act)}", _obstacle_in_timms(module))


def _is_timms(kind: type) -> bool:
    return kind.__module__.startswith("timm.") and kind.__name__ == "BatchNormAct2d"


def is_patched(module: nn.Module) -> bool:
    """Whether the module calls another forward than that of its class, as offloading libraries let it."""
    return "forward" in vars(module)


def _may_join(x: Any) -> bool:
    """Whether nothing observes calls of the modules, and functions of gradkern compute them."""
    plain = isinstance(x, Tensor) and not torch.compiler.is_compiling() and not needs_pytorch(x)
    return plain and not _has_any_global_hook()


def _as_one(first: Any, second: Any, x: Tensor, residual: Tensor | None = None) -> Tensor | None:
    """second(first(x) + residual), if it is computed as one; else None."""
    if _obstacle(first, second) != "":
        return None
    if isinstance(first, nn.Linear):
        return linear_gelu(x, first.weight, first.bias, second.approximate)
    return _train(first, second, x, residual) if first.training else None


def _train(norm: Any, activation: Any, x: Tensor, residual: Tensor | None) -> Tensor:
    alpha = getattr(activation, "negative_slope", getattr(activation, "alpha", 0.01))
    return train_batch_norm(norm, x, _ACTIVATIONS[type(activation)], alpha, residual)


def _has_operator(activation: Any) -> bool:
    """Whether batch norm's operators have it: of GELU they have the exact form."""
    return type(activation) in _ACTIVATIONS and getattr(activation, "approximate", "none") == "none"


def _obstacle(first: Any, second: Any) -> str | None:
    """Why a module and the next cannot be one; "" where they can, None for modules that have nothing to do with it."""
    if type(first) in _NORMS and _has_operator(second):
        return _obstacle_in(first) or _watched(first, second)
    if isinstance(first, nn.Linear) and isinstance(second, nn.GELU):
        other = next((each for each in (first, second) if type(each) not in (nn.Linear, nn.GELU)), None)
        if other is not None:
            return f"a class is {_name(other)}"
        return "it has no bias" if first.bias is None else _watched(first, second)
    return None


def _obstacle_in(norm: Any) -> str:
    if norm.weight is None or norm.bias is None:
        return "it has no weight and bias"
    return "its momentum is None" if norm.momentum is None else ""


def _obstacle_in_timms(norm: Any) -> str:
    if type(norm.drop) is not nn.Identity or not _has_operator(norm.act):
        other = norm.drop if type(norm.act) is nn.Identity or _has_operator(norm.act) else norm.act
        return f"its activation or drop is {_name(other)}"
    return _obstacle_in(norm) or _watched(norm.drop, norm.act)


def _watched(*modules: nn.Module) -> str:
    """Why modules have to be called themselves."""
    for each in modules:
        if each._forward_hooks or each._forward_pre_hooks or each._backward_hooks or each._backward_pre_hooks:
            return "hooks look at what is between"
        if is_patched(each):
            return PATCHED
    return ""


def _name(module: Any) -> str:
    return type(module).__name__
