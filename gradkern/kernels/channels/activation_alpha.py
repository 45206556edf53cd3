"""An activation as the constants of kernels have it: one word, in which leaky_relu has its alpha. Nothing here imports
Numba.

So what a kernel, or a search, is known by is one string, and that of the others says nothing of an alpha.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["with_alpha", "without_alpha"]


def with_alpha(attributes: Mapping[str, Any]) -> str:
    """The activation of a call with these attributes: "none", "relu", "silu", or "leaky_relu 0.01"."""
    name = attributes.get("activation", "none")
    return f"{name} {attributes['activation_alpha']!r}" if name == "leaky_relu" else name


def without_alpha(activation: str) -> tuple[str, float]:
    """Its name, and leaky_relu's alpha; of the others 0."""
    name, _, alpha = activation.partition(" ")
    return name, float(alpha or 0)
