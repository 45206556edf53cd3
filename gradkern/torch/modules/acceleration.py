"""accelerate(model): in place, by the class of its modules, what `enable` cannot do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError
from gradkern.torch.functional.convolutions import is_depthwise
from gradkern.torch.modules.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    InvertibleLayerNorm,
    LayerNorm,
    LinearGELU,
    RMSNorm,
    known_autocast,
)
from gradkern.torch.modules.norm_joins import Join, joins
from gradkern.torch.sync_batch_norm.module import SyncBatchNorm

__all__ = ["Acceleration", "accelerate"]

_CONVOLUTIONS: dict[type[nn.Module], type[nn.Module]] = {nn.Conv1d: Conv1d, nn.Conv2d: Conv2d, nn.Conv3d: Conv3d}
_OURS = LayerNorm, RMSNorm, InvertibleLayerNorm
_PATCHED = "a forward of its own has been put into it"
Filter = Callable[[nn.Module, str], bool]


class FusedGELU(nn.GELU):
    """A GELU that the linear layer before it has done."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  as its base class calls it
        return input


@dataclass
class Acceleration:
    """What was replaced, and what was looked at and left, with the reason; by the names of the modules.

    Printing it lists both; `undo` puts every class back.
    """

    replaced: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    _before: list[tuple[nn.Module, str, type[nn.Module], type[nn.Module], dict[str, object]]] = field(
        default_factory=list, repr=False
    )

    def undo(self) -> None:
        """Put the modules' own classes back.

        Raises RuntimeError, and leaves all as it is, where one has another class since, such as fully_shard's.
        """
        for module, name, _, given, _ in self._before:
            if type(module) is not given:
                raise RuntimeError(
                    f"undo: {name or 'the model'} is a {type(module).__name__} by now; expected {given.__name__}"
                )
        while self._before:
            module, _, kind, _, attributes = self._before.pop()
            module.__class__ = kind
            for name in attributes:
                module.__dict__.pop(name, None)
        self.replaced.clear()

    def __str__(self) -> str:
        lines = [f"gradkern.torch: {len(self.replaced)} modules replaced, {len(self.left)} left"]
        lines += [f"  {name}: {what}" for name, what in self.replaced.items()]
        lines += [f"  {name}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines)

    def replace(self, module: nn.Module, name: str, kind: type[nn.Module], **attributes: object) -> None:
        """Give the module another class, and these attributes, which are none of its parameters or buffers."""
        self._before.append((module, name, type(module), kind, attributes))
        module.__class__ = kind
        module.__dict__.update(attributes)
        self.replaced[name] = kind.__name__


def accelerate(
    model: nn.Module,
    filter: Filter | None = None,  # noqa: A002  as other libraries call it
    *,
    autocast: str | None = None,
    invertible: bool = False,
) -> Acceleration:
    """Replace modules of a model in place, by changing their class: parameters, hooks, the keys of state_dict, tied
    weights, deepcopy and pickle stay as they are.

    Only modules whose class is exactly known, and only what `gradkern.torch.enable` cannot do. In an nn.Sequential
    nn.Linear followed by nn.GELU becomes one function; so do nn.BatchNorm1d, 2d and 3d followed by nn.ReLU or nn.SiLU,
    there and in subclasses that call their children as it does, as torchvision's ConvNormActivation; in torchvision's
    ResNets the addition with them; and timm's BatchNormAct2d. Depthwise convolutions are gradkern's forward, too.
    nn.SyncBatchNorm sends one message each way, see SyncBatchNorm; with autocast="input" layer norms and RMSNorms keep
    16 bits under autocast, where PyTorch goes to float32 and back; with invertible=True layer norms keep their outputs
    in place of their inputs, and under autocast the type of those: see `invertible_layer_norm` for when that saves
    memory.

    filter   of module and name, which to look at; by default all

    Raises RuntimeError for a model that fully_shard has wrapped: call this before it; ArgumentError and
    AttributeValueError for options that are none.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"accelerate: model is a {type(model).__name__}; expected an nn.Module")
    if filter is not None and not callable(filter):
        raise ArgumentError(f"accelerate: filter is {filter!r}; expected a function of a module and its name")
    known_autocast("accelerate", autocast)
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
            raise RuntimeError(f"accelerate: {name or 'the model'} is wrapped by fully_shard; accelerate before it")
    done = Acceleration()
    places = Counter(id(child) for module in modules.values() for child in module._modules.values())
    for name, module in modules.items():
        if filter is not None and not filter(module, name):
            continue
        if _is_patched(module):
            if not type(module).__module__.startswith("torch._dynamo"):  # what torch.compile wraps a model in
                done.left[name] = _PATCHED
            continue
        for join in joins(module, partial(_path, name)):
            _apply(done, join, filter, places)
        if type(module) is nn.Sequential:
            for (first, linear), (second, gelu) in pairwise(module._modules.items()):
                if places[id(linear)] == places[id(gelu)] == 1:
                    _join(done, _path(name, first), linear, _path(name, second), gelu, filter)
        elif type(module) is nn.LayerNorm:
            if invertible and module.weight is not None and module.bias is not None:
                done.replace(module, name, InvertibleLayerNorm)
            elif invertible:
                done.left[name] = "it has no weight and bias to invert"
            elif autocast is not None:
                done.replace(module, name, LayerNorm, autocast=autocast)
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and type(module) in _CONVOLUTIONS:
            if is_depthwise(module.weight, module.groups):
                done.replace(module, name, _CONVOLUTIONS[type(module)])
        elif type(module) is nn.RMSNorm and autocast is not None:
            done.replace(module, name, RMSNorm, autocast=autocast)
        elif type(module) is nn.SyncBatchNorm:
            done.replace(module, name, SyncBatchNorm)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm) and type(module) not in (nn.RMSNorm, *_OURS):
            done.left[name] = f"its class is {type(module).__name__}"
    return done


def _apply(done: Acceleration, join: Join, wanted: Filter | None, places: Counter[int]) -> None:
    """Join what can be joined and is wanted; say why the rest is not."""
    if wanted is not None and not all(wanted(module, name) for module, name, _, _ in join.parts):
        return
    why = join.obstacle
    if any(places[id(module)] > 1 for module, _, _, _ in join.parts):
        why = why or "a module of it is in several places"
    if any(map(_is_hooked, join.inside)):
        why = why or "hooks look at what is inside"
    if any(_is_patched(each) for each in (*join.inside, *[module for module, _, _, _ in join.parts])):
        why = why or _PATCHED
    if why:
        done.left[join.parts[0][1]] = why
        return
    for module, name, kind, attributes in join.parts:
        done.replace(module, name, kind, **attributes)


def _join(
    done: Acceleration, first: str, linear: nn.Module, second: str, gelu: nn.Module, wanted: Filter | None
) -> None:
    """Make a linear layer and the GELU behind it one function, if they are exactly that."""
    if not isinstance(linear, nn.Linear) or not isinstance(gelu, nn.GELU) or type(gelu) is FusedGELU:
        return
    if wanted is not None and not (wanted(linear, first) and wanted(gelu, second)):
        return
    others = [each for each in (linear, gelu) if type(each) not in (nn.Linear, nn.GELU)]
    if others:
        done.left[first] = f"with {second}: a class is {type(others[0]).__name__}"
    elif linear.bias is None:
        done.left[first] = "it has no bias"
    elif _is_hooked(linear) or _is_hooked(gelu):
        done.left[first] = f"hooks look at what is between it and {second}"
    elif _is_patched(linear) or _is_patched(gelu):
        done.left[first] = f"with {second}: {_PATCHED}"
    else:
        done.replace(linear, first, LinearGELU, approximate=gelu.approximate)
        done.replace(gelu, second, FusedGELU)


def _is_hooked(module: nn.Module) -> bool:
    """Whether hooks are called with what goes into the module or comes out of it, either way."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def _is_patched(module: nn.Module) -> bool:
    """Whether the module calls another forward than that of its class, as offloading libraries let it."""
    return "forward" in vars(module)


def _path(parent: str, child: str) -> str:
    return ".".join([each for each in (parent, child) if each])
