"""accelerate(model): in place, by the class of its modules, what `enable` cannot do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError
from gradkern.system.display import table
from gradkern.torch.functional.convolutions import is_depthwise
from gradkern.torch.modules.joins import PATCHED, Joining, is_patched, joining, pairs
from gradkern.torch.modules.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    InvertibleLayerNorm,
    LayerNorm,
    RMSNorm,
    known_autocast,
)
from gradkern.torch.sync_batch_norm.module import SyncBatchNorm

_CONVOLUTIONS: dict[type[nn.Module], type[nn.Module]] = {nn.Conv1d: Conv1d, nn.Conv2d: Conv2d, nn.Conv3d: Conv3d}
_OURS = LayerNorm, RMSNorm, InvertibleLayerNorm
Filter = Callable[[nn.Module, str], bool]


@dataclass
class Acceleration:
    """The modules that were replaced, and those that were considered and left, with the reason; by their names.

    Of a pair that is computed as one, such as "BatchNorm2d + ReLU", it is the name of the first. Printing it lists
    both; `undo` puts every class back.

    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU())
    >>> done = gradkern.torch.accelerate(model)
    >>> print(done)
    gradkern.torch: 1 modules replaced, 0 left
      0: Linear + GELU
    >>> done.undo()
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
            for name, value in attributes.items():
                module.__dict__.pop(name, None)
                if value is not None:
                    module.__dict__[name] = value
        self.replaced.clear()

    def __repr__(self) -> str:
        return f"<gradkern.torch acceleration: {len(self.replaced)} modules replaced, {len(self.left)} left>"

    def _repr_html_(self) -> str:
        rows = [(name, what, "") for name, what in self.replaced.items()]
        rows += [(name, "", why) for name, why in self.left.items()]
        return table(repr(self).strip("<>"), ("module", "replaced by", "left because"), rows)

    def __str__(self) -> str:
        lines = [f"gradkern.torch: {len(self.replaced)} modules replaced, {len(self.left)} left"]
        lines += [f"  {name}: {what}" for name, what in self.replaced.items()]
        lines += [f"  {name}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines)

    def replace(
        self,
        module: nn.Module,
        name: str,
        kind: type[nn.Module],
        what: Mapping[str, str] | None = None,
        **attributes: object,
    ) -> None:
        """Give the module another class, and these attributes. They are neither parameters nor buffers.

        what   what becomes something else by that, and what it becomes; by default the module
        """
        before: dict[str, object] = {name: vars(module).get(name) for name in attributes}
        self._before.append((module, name, type(module), kind, before))
        module.__class__ = kind
        module.__dict__.update(attributes)
        self.replaced |= what or {name: kind.__name__}


def accelerate(
    model: nn.Module,
    filter: Filter | None = None,  # noqa: A002  as other libraries call it
    *,
    autocast: str | None = None,
    invertible: bool = False,
) -> Acceleration:
    """Change the class of modules of a model, in place: parameters, hooks, the keys of state_dict, tied weights,
    deepcopy and pickle stay as they are.

    Only modules whose class is exactly known, and only what `gradkern.torch.enable` cannot do:

    - in an nn.Sequential, and subclasses that call their children as it does, such as torchvision's ConvNormActivation,
      nn.Linear followed by nn.GELU is computed as one, and in training nn.BatchNorm1d, 2d and 3d followed by nn.ReLU,
      nn.LeakyReLU, nn.SiLU, nn.ReLU6, nn.Hardswish, nn.ELU or nn.GELU; in torchvision's ResNets with the addition
      between; and timm's BatchNormAct2d. The module around the pair gets another class. It checks at every call what it
      is about to call: modules that were replaced since, as by a conversion to SyncBatchNorm, or hooked are called as
      PyTorch calls them;
    - depthwise convolutions are gradkern's forward, too;
    - nn.SyncBatchNorm sends one message each way, see SyncBatchNorm;
    - with autocast="input" layer norms and RMSNorms keep 16 bits under autocast, where PyTorch goes to float32;
    - with invertible=True layer norms keep their outputs in place of their inputs, and under autocast the type of
      those: see `invertible_layer_norm` for when that saves memory.

    torch.fx and torch.jit.trace see the model as it was. torch.jit.script puts PyTorch's own modules into it, in place
    of those that it has other classes of: script a copy.

    filter   a predicate of module and name: the modules to consider; by default all

    Raises RuntimeError for a model that fully_shard has wrapped: call this before it; ArgumentError and
    AttributeValueError for options that are none.

    >>> model = torch.nn.Sequential(torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    >>> gradkern.torch.accelerate(model).replaced
    {'0': 'BatchNorm2d + ReLU'}
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
    for name, module in modules.items():
        if filter is not None and not filter(module, name):
            continue
        if is_patched(module):
            if not type(module).__module__.startswith("torch._dynamo"):  # what torch.compile wraps a model in
                done.left[name] = PATCHED
            continue
        _join(done, module, name, filter)
        if type(module) is nn.LayerNorm:
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


def _join(done: Acceleration, module: nn.Module, name: str, wanted: Filter | None) -> None:
    """Let a module compute the pairs of its children as one that are wanted and can be; say why others cannot."""
    joins = isinstance(module, Joining)
    apart: set[str] = set(module.apart) if joins else set()
    taken = {}
    for first, second, what, obstacle in pairs(module):
        path = _path(name, first)
        if wanted is not None and not all(wanted(module.get_submodule(n), _path(name, n)) for n in (first, second)):
            if not joins:
                apart.add(first)
        elif obstacle:
            done.left[path] = obstacle
        elif first in apart or not joins:
            apart.discard(first)
            taken[path] = what
    if taken:
        done.replace(module, name, joining(module), taken, apart=frozenset(apart))


def _path(parent: str, child: str) -> str:
    return ".".join([each for each in (parent, child) if each])
