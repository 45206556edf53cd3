"""Compile-time constants of the tiles kernel. Nothing here imports Numba."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.kernels.channels.tiles_config import TilesConfig


@dataclass(frozen=True, slots=True)
class DmlBatchNormConfig(TilesConfig):
    """The sums are those for the scale and, if requested, the bias."""

    epsilon: float = 0.0
