"""An activation as one string, that for leaky_relu and elu includes alpha. Nothing here imports Numba.

Constants of kernels and keys of searches contain this string; for other activations it does not depend on alpha.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_alpha(attributes: Mapping[str, Any]) -> str:
    """The activation of a call with these attributes: "none", "relu", "silu", or "leaky_relu 0.01"."""
    name = attributes.get("activation", "none")
    return f"{name} {attributes['activation_alpha']!r}" if name in ("leaky_relu", "elu") else name


def without_alpha(activation: str) -> tuple[str, float]:
    """The name, and alpha; 0 for activations without."""
    name, _, alpha = activation.partition(" ")
    return name, float(alpha or 0)
