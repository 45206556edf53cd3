"""The constants of the tiles kernel of DirectML's batch norm gradient. Nothing here imports Numba."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.kernels.channels.tiles_config import TilesConfig

__all__ = ["DmlBatchNormConfig"]


@dataclass(frozen=True, slots=True)
class DmlBatchNormConfig(TilesConfig):
    """Compile-time constants. The sums are those for the scale and, if requested, the bias."""

    epsilon: float = 0.0
