"""The fusions that are made, from how many bytes on, and why: the one table of it.

Each operator of gradkern's in a compiled graph is a call that Inductor fuses nothing with, and a launch of its own:
below some size that costs more than the passes over memory that it saves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, nearest

_BEHIND = ("", *[f" + {each}" for each in ("relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu")])
_NORMS = ("batch_norm", "instance_norm", "group_norm", "group_norm + scale and shift")
_NAMES = (
    *(norm + behind for norm in _NORMS for behind in _BEHIND),
    *("batch_norm + add", "batch_norm + add + relu", "batch_norm + add + leaky_relu"),
    *("add + layer_norm", "add + rms_norm", "linear + gelu", "depthwise conv", "grouped conv", "dW of few channels"),
    *("max_pool", "avg_pool", "adaptive_avg_pool", "interpolate", "embedding", "cross_entropy", "causal attention"),
    *("padded logits", "channels_last_3d", "broadcast tables", "batch-first attention"),
)
GATES: Mapping[str, int] = MappingProxyType(
    {
        # Smaller inputs fit into the L2 cache, where launches count and not passes over memory: estimated, not
        # measured. Of an embedding it is the gradient, of a table that is computed once what reads it.
        **dict.fromkeys(_NAMES, 1 << 20),
        # of one sample; the smallest of a 3-D U-Net whose step was measured have 320 KB
        **{f"instance_norm{behind}": 1 << 18 for behind in _BEHIND},
        **dict.fromkeys(("linear + gelu", "cross_entropy", "padded logits"), 1 << 22),
        "causal attention": 1,  # a mask is read, and what it masks is computed, at any size
    }
)
"""What is tried, whatever a model calls it, and from how many bytes on it is made."""


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
    least: dict[str, int | None] = dict(GATES)
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
    return Gates(least, tuple(change))
