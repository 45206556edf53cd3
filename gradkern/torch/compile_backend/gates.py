"""The fusions that are made, from how many bytes on, and why: the one table of it.

Each operator of gradkern's in a compiled graph is a call that Inductor fuses nothing with, and a launch of its own:
below some size that costs more than the passes over memory that it saves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, nearest

__all__ = ["GATES", "Gate", "Gates", "gates_of", "hint"]


@dataclass(frozen=True)
class Gate:
    """least: a fusion is made for inputs of so many bytes or more. why: the reason."""

    least: int
    why: str


_LAUNCH = "smaller ones fit into the L2 cache, where launches count and not passes over memory; estimated, not measured"
_VOLUMES = "of one sample; the smallest of a 3-D U-Net whose step was measured have 320 KB"

_ACTIVATIONS = ("relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu")

GATES: Mapping[str, Gate] = MappingProxyType(
    {
        "batch_norm": Gate(1 << 20, _LAUNCH),
        **{f"batch_norm + {each}": Gate(1 << 20, _LAUNCH) for each in _ACTIVATIONS},
        "batch_norm + add": Gate(1 << 20, _LAUNCH),
        "batch_norm + add + relu": Gate(1 << 20, _LAUNCH),
        "batch_norm + add + leaky_relu": Gate(1 << 20, _LAUNCH),
        "add + layer_norm": Gate(1 << 20, _LAUNCH),
        "add + rms_norm": Gate(1 << 20, _LAUNCH),
        "depthwise conv": Gate(1 << 20, _LAUNCH),
        "grouped conv": Gate(1 << 20, _LAUNCH),
        "dW of few channels": Gate(1 << 20, _LAUNCH),
        "instance_norm": Gate(1 << 18, _VOLUMES),
        **{f"instance_norm + {each}": Gate(1 << 18, _VOLUMES) for each in _ACTIVATIONS},
        **{
            f"{norm}{each}": Gate(1 << 20, _LAUNCH)
            for norm in ("group_norm", "group_norm + scale and shift")
            for each in ("", *[f" + {each}" for each in _ACTIVATIONS])
        },
        "channels_last_3d": Gate(1 << 20, _LAUNCH),
        "cross_entropy": Gate(1 << 22, _LAUNCH),
        "embedding": Gate(1 << 20, f"of the gradient; {_LAUNCH}"),
        **{each: Gate(1 << 20, _LAUNCH) for each in ("max_pool", "avg_pool", "adaptive_avg_pool", "interpolate")},
        "linear + gelu": Gate(1 << 22, _LAUNCH),
        "causal attention": Gate(1, "a mask is read, and what it masks is computed, at any size"),
        "broadcast tables": Gate(1 << 20, f"of what reads a table that is computed once; {_LAUNCH}"),
    }
)
"""What is tried, whatever a model calls it."""


class Gates:
    """The table with what options={"gradkern": ...} changes of it."""

    def __init__(self, least: Mapping[str, int | None], named: Collection[str] = ()) -> None:
        self._least, self._named = least, named

    @property
    def key(self) -> str:
        """What distinguishes them, for the keys of caches."""
        return f"{sorted(self._least.items())} {sorted(self._named)}"

    def reason(self, fusion: str, x: torch.Tensor, doubt: str = "") -> str:
        """Why a fusion of this input is not made; "" where it is. doubt: why it is made here only on request."""
        least = self._least[fusion]
        if least is None:
            return "switched off"
        if doubt and fusion not in self._named:
            return f"off by default: {doubt}"
        size = hint(x.numel()) * x.element_size()
        if not size:
            return "it is empty"
        return f"fewer than {least} bytes" if size < least else ""


def hint(size: Any) -> int:
    """A size, or of one that a graph leaves open that of its first call: a comparison would make it two graphs."""
    node = getattr(size, "node", None)
    return int(size if node is None else node.hint or 1)


def gates_of(change: Any) -> Gates:
    """`change` is a number of bytes for all, or by fusion such a number, True or False. Raises ArgumentError."""
    least: dict[str, int | None] = {name: gate.least for name, gate in GATES.items()}
    if change is None:
        return Gates(least)
    by_fusion = isinstance(change, Mapping)
    if not by_fusion:
        change = dict.fromkeys(GATES, change)
    for name, value in change.items():
        if name not in GATES:
            hint = nearest(name, GATES) if isinstance(name, str) else ""
            raise ArgumentError(f"torch.compile: option gradkern has {name!r}{hint}; expected {', '.join(GATES)}")
        if not isinstance(value, int) or value < 0:
            whose, more = (
                (f"has {value!r} for {name!r}", "") if by_fusion else (f"is {value!r}", ", or a dict of these")
            )
            raise ArgumentError(f"torch.compile: option gradkern {whose}; expected bytes, True or False{more}")
        least[name] = (0 if value else None) if isinstance(value, bool) else value
    return Gates(least, change.keys())
