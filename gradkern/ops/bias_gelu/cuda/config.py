"""Compile-time constants of a GELU kernel, and their choice for a shape, types and a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradkern.kernels.channels.tiles_config import TilesConfig, tiles_of_sums, with_lanes


@dataclass(frozen=True, slots=True)
class BiasGeluConfig(TilesConfig):
    """Compile-time constants. D is dY, the sum is dB. GELU itself writes to dX and has no D."""

    @property
    def fast(self) -> bool:
        return self.operator.startswith("BiasFast")

    @property
    def forward(self) -> bool:
        """GELU itself, and no gradient."""
        return not self.reads_D

    @property
    def batch_time(self) -> float:
        return 1.7

    @property
    def bound_by_arithmetic(self) -> bool:
        """Seven gradients with that of the bias took 0.93 to 1 of the time without more folding on an H200."""
        return self.compute == "float64"

    @property
    def finest(self) -> str:
        """The type of all outputs; float32 if they have two types, or are unrounded sums of many numbers."""
        return self.data if "dB" not in self.outputs or self.parameter == self.data else "float32"


def choose(config: BiasGeluConfig, columns: int, rows: int, processors: int) -> BiasGeluConfig:
    """`config` with its threads and unrolling, for the kernel's `rows` and `columns`; width, fold and types are given.

    dX alone, from measurements on an H200 with a cold L2: 128 threads side by side with 4 rows each, or fewer if there
    are not two blocks for each multiprocessor; registers for 1024 threads of a multiprocessor, 384 in float64.
    """
    wide = config.compute == "float64"
    if "dB" in config.outputs:
        threads = 320 if not wide else 192 if config.folded else 256  # for the registers
        return tiles_of_sums(config, columns, rows, processors, threads, 4)
    chosen = with_lanes(config, columns, (128, 64, 32, 16, 8), 128)
    blocks = 3 if wide else 6 if config.folded else 8  # loading biases one by one takes more registers
    chosen = replace(chosen, unroll=4, blocks_per_processor=blocks)
    while chosen.unroll > 1 and chosen.chunks(rows) * chosen.slices(columns) < 2 * processors:
        chosen = replace(chosen, unroll=chosen.unroll // 2)
    return chosen
