"""The constants of the tiles kernel of DirectML's batch norm gradient. Nothing here imports Numba."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.channel_kernels.tiles_form import TilesForm

__all__ = ["NAMES_OF_TILES", "DmlBatchNormForm"]

NAMES_OF_TILES = {  # contract name -> the kernel's
    "Input": "X",
    "InputGradient": "D",
    "Mean": "first_parameter",
    "Scale": "second_parameter",
    "Variance": "third_parameter",
    "OutputGradient": "dX",
    "OutputScaleGradient": "first_sum",
    "OutputBiasGradient": "second_sum",
}


@dataclass(frozen=True, slots=True)
class DmlBatchNormForm(TilesForm):
    """All that is bound when the kernel is compiled. The sums are those for the scale and, if wanted, the bias."""

    epsilon: float = 0.0
